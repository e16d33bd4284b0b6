// Matrix instructions of NVIDIA's GPUs from sm_80 on, and what brings their operands. A stand-in of
// the same functions runs the kernels on a host (tests/cuda/matrix).
//
// All lanes of a warp call each. A product is d = a b + d with a of 16 rows and b of 8 columns;
// with g = lane / 4 and t = lane % 4 a thread has of d (g, 2t), (g, 2t + 1), (g + 8, 2t) and
// (g + 8, 2t + 1). Of sixteen k each word is a pair: of a (g, 2t), (g + 8, 2t), (g, 2t + 8) and
// (g + 8, 2t + 8), of b (2t, g) and (2t + 8, g). Of eight k: of a (g, t), (g + 8, t), (g, t + 4)
// and (g + 8, t + 4), of b (t, g) and (t + 4, g).
#pragma once
#include "cuda/ptx.h"

// ---------------------------------------------------------------- products

#define MMA(name, kinds)                                                              \
  DEV void name(float* d, const u32* a, const u32* b) {                               \
    asm volatile("mma.sync.aligned." kinds                                            \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"   \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1])); \
  }
MMA(mma_f16, "m16n8k16.row.col.f32.f16.f16.f32")
MMA(mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32")
MMA(mma_tf32, "m16n8k8.row.col.f32.tf32.tf32.f32")
#undef MMA

// ---------------------------------------------------------------- operands

// Matrices of 8 rows of 16 bytes; row i of matrix m is at the address that lane 8 m + i gives, and
// word m of a thread is its word t of row g. Of two matrices the lanes from 16 on give any address.
DEV void load_matrices4(u32 at, u32* to) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(at)
               : "memory");
}
DEV void load_matrices2(u32 at, u32* to) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(to[0]), "=r"(to[1])
               : "r"(at)
               : "memory");
}
// 16 bytes, or as many zeros where there is nothing: then nothing is read.
DEV void copy16_or_zeros(u32 to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
