// The interface between the CPU executor and its kernels. Kernel objects include this and no
// standard header.
#pragma once

namespace accel_cpu {

typedef unsigned int u32;
typedef unsigned long long u64;

struct KernelArgs {
  void* const* buf;    // operands: input slots in order (null where absent), then results
  const void* params;  // the operator's struct of shaders/shared/params
  const u32* scalar;   // runtime scalars in attribute order, as bits
  void* shared;  // scratch of the whole command, shared by its phases and chunks; 64-byte aligned
};

// A kernel runs as one or two phases; all chunks of a phase end before the next phase starts.
// Chunks of one phase are independent and own disjoint outputs; how many there are never changes a
// bit. `local` is the thread's own scratch.
struct Phase {
  // Number of chunks for this call; at least 1.
  u32 (*chunks)(const void* params, u32 threads);
  void (*run)(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local);
};

// Rows m0 .. m1 by columns n0 .. n1 of a result [M, N].
struct Rect {
  u32 n0, n1, m0, m1;
};

struct Kernel {
  const char* name;
  Phase phases[2];                          // phases[1].run is null for a kernel of one phase
  u64 (*shared_bytes)(const void* params);  // null: none
  u64 (*local_bytes)(const void* params);   // null: none
  // Of a product: what a chunk of the second phase owns, and whether the first phase of a call with
  // other parameters and the same operand 0 leaves the same in the shared scratch.
  Rect (*owns)(const void* params, u32 chunk, u32 n_chunks) = nullptr;
  bool (*packs_alike)(const void* params, const void* other) = nullptr;
  // Of an elementwise kernel: elements lo .. hi of the result.
  void (*span)(const KernelArgs* args, u64 lo, u64 hi) = nullptr;
  // Of a top-k mask: the chain of n commands that it is the third of, from the scaling of logits to
  // the draw, without what lies between. How many rows it has, 0 where the commands must run one by
  // one; and the token of a row, false where the same shows only now. Reads operands alone.
  u32 (*chain_rows)(const KernelArgs* steps, u32 n) = nullptr;
  bool (*chain_row)(const KernelArgs* steps, u32 n, u32 row, u32* token, void* local) = nullptr;
};

// One table an instruction set: groups ended by null, each ended by a kernel without a name. Tables
// hold the same names.
struct KernelTable {
  const char* isa;    // "base", "avx2", "avx512", "neon"
  const char* level;  // numerical level: "fma" or "base"
  const Kernel* const* groups;
};

}  // namespace accel_cpu
