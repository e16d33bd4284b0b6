#line 1 "rms_norm.metal"
// rms_norm and l2_norm: sixteen threads a row, sums in lane16.
#line 1 "kernel.h"
// What every shader begins with: the library, no contraction, the words of shaders/shared, and the
// places of what every kernel gets besides its operands.
//
// Operand i of a command (input slots in order, then results) is buffer(i); an absent one is bound
// to a few bytes that no kernel reads.

#include <metal_stdlib>
using namespace metal;
#if __METAL_VERSION__ >= 320
#pragma METAL fp contract(off)
#else
#pragma clang fp contract(off)
#endif
#line 1 "shared/dialect.h"
// The words in which the headers of shaders/shared are written, for C++, CUDA and the Metal Shading
// Language. DEV marks a function, GLOBAL and CONSTANT the address spaces of a pointer.


#if defined(__METAL_VERSION__)
#define DEV static inline
#define GLOBAL device
#define CONSTANT constant
#elif defined(__CUDACC__)
#define DEV static __device__ __forceinline__
#define GLOBAL
#define CONSTANT const
#else
#define DEV static inline
#define GLOBAL
#define CONSTANT const
#endif

typedef float f32;
typedef unsigned int u32;
#line 15 "kernel.h"
#line 1 "shared/places.h"
// Where a kernel of a GPU finds what it gets besides its operands, as indices of buffers.

#define PARAMS 27   // constant: the operator's struct of shared/params
#define SCALARS 28  // constant u32*: runtime scalars in attribute order, as bits
#define SCRATCH 29  // device: of the command, shared by its launches
#line 16 "kernel.h"

// Storage types: float, half, and the bits of a bf16 as ushort.
static inline float widen(float v) {
  return v;
}
static inline float widen(half v) {
  return float(v);
}
static inline float widen(ushort v) {
  return as_type<float>(uint(v) << 16);
}
template <class T>
static inline T narrow(float v) {
  return T(v);
}
#line 3 "rms_norm.metal"
#line 1 "lanes.h"
// Sums along a row in the order lane16 (specs/010 section 4): sixteen neighbouring threads are the
// lanes, each with a chain of its own, and lane i adds lane i + h for h = 8, 4, 2, 1. `Plain` goes
// through threadgroup memory, for devices whose SIMD groups exchange nothing; the bits are equal.


struct Simd {
  // Of the sixteen lanes around this thread; every thread of the group calls it.
  static inline float sum16(float a, threadgroup float*, uint) {
    for (ushort h = 8; h > 0; h /= 2) a = a + simd_shuffle_xor(a, h);
    return a;
  }
};

struct Plain {
  static inline float sum16(float a, threadgroup float* slots, uint thread_index) {
    for (ushort h = 8; h > 0; h /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      slots[thread_index] = a;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      a = a + slots[thread_index ^ h];
    }
    return a;
  }
};
#line 4 "rms_norm.metal"
#line 1 "shared/params/rows.h"
// Parameters of kernels over the rows of the last axis. eps is read by rms_norm, k by top_k_mask, p
// by top_p_mask, exact (0 or 1) by both masks.

struct RowsParams {
  unsigned rows, width;
  float eps, p;
  unsigned k, exact;
};
static_assert(sizeof(RowsParams) == 24, "read by kernels of three compilers");
#line 5 "rms_norm.metal"

#define ROWS_A_GROUP 16  // of sixteen threads each

template <class T, class Exchange>
kernel void rms_norm(device const T* x [[buffer(0)]], device const float* gain [[buffer(1)]],
                     device T* out [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const bool here = row < p.rows;
  const ulong start = ulong(row) * p.width;
  float a = 0.0f;
  for (uint i = lane; here && i < p.width; i += 16) {
    const float v = widen(x[start + i]);
    a = fma(v, v, a);
  }
  const float squares = Exchange::sum16(a, slots, index);
  const float scale = 1.0f / sqrt(squares / float(p.width) + p.eps);
  for (uint i = lane; here && i < p.width; i += 16)
    out[start + i] = narrow<T>(widen(x[start + i]) * scale * gain[i]);
}

template <class Exchange>
kernel void l2_norm(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    constant RowsParams& p [[buffer(PARAMS)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const bool here = row < p.rows;
  const ulong start = ulong(row) * p.width;
  float a = 0.0f;
  for (uint i = lane; here && i < p.width; i += 16) {
    const float v = x[start + i];
    a = fma(v, v, a);
  }
  const float scale = 1.0f / sqrt(Exchange::sum16(a, slots, index) + p.eps);
  for (uint i = lane; here && i < p.width; i += 16) out[start + i] = x[start + i] * scale;
}

template [[host_name("rms_norm_f32")]] [[kernel]] decltype(rms_norm<float, Simd>)
    rms_norm<float, Simd>;
template [[host_name("rms_norm_f32_plain")]] [[kernel]] decltype(rms_norm<float, Plain>)
    rms_norm<float, Plain>;
template [[host_name("rms_norm_f16")]] [[kernel]] decltype(rms_norm<half, Simd>)
    rms_norm<half, Simd>;
template [[host_name("rms_norm_f16_plain")]] [[kernel]] decltype(rms_norm<half, Plain>)
    rms_norm<half, Plain>;
template [[host_name("l2_norm_f32")]] [[kernel]] decltype(l2_norm<Simd>) l2_norm<Simd>;
template [[host_name("l2_norm_f32_plain")]] [[kernel]] decltype(l2_norm<Plain>) l2_norm<Plain>;
