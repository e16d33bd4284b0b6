// What every kernel file starts with. Each is compiled once an instruction set (-DISA=base|avx2|
// avx512|neon with its flags). No standard header and nothing but static functions in the namespace
// of the instruction set: a symbol shared by objects of different instruction sets would be merged
// by the linker, and the baseline would run AVX-512 code.
#pragma once
#if defined(__SSE2__)
// gcc's own header leaves the ignored lanes of some results undefined, and gcc then warns of them.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif
#if ACCEL_ISA_neon
#include <arm_neon.h>
#endif

#include "backends/cpu/kernel_api.h"

namespace ISA {
using accel_cpu::KernelArgs;

#include "backends/cpu/kernels/vec.h"

#include "backends/cpu/kernels/math_vec.h"

#include "backends/cpu/kernels/chunks.inl"
}  // namespace ISA

#define ACCEL_JOIN3(a, b, c) a##b##_##c
#define ACCEL_SYMBOL(group, isa) ACCEL_JOIN3(accel_kernels_, group, isa)
// A file's kernels, between KERNELS_BEGIN(file) and KERNELS_END; the file has a line in groups.inc.
// KERNEL(name, chunks, run): one phase. KERNEL_LOCAL adds the bytes of thread scratch.
// KERNEL_TWO(name, chunks, run, chunks2, run2, shared_bytes, local_bytes): two phases; null where
// there is no scratch.
// KERNEL_CHAIN adds the walk of a sampling chain to KERNEL_LOCAL.
// KERNEL_SPAN(name, chunks, span): elementwise. KERNEL_PRODUCT(name, chunks, pack, run,
// shared_bytes, local_bytes, owns, alike): a product.
#define KERNELS_BEGIN(group)                                 \
  extern "C" {                                               \
  extern const accel_cpu::Kernel ACCEL_SYMBOL(group, ISA)[]; \
  const accel_cpu::Kernel ACCEL_SYMBOL(group, ISA)[] = {
#define KERNELS_END                                                       \
  { nullptr, {{nullptr, nullptr}, {nullptr, nullptr}}, nullptr, nullptr } \
  }                                                                       \
  ;                                                                       \
  }
#define KERNEL(name, chunks, run) {#name, {{chunks, run}, {nullptr, nullptr}}, nullptr, nullptr},
#define KERNEL_LOCAL(name, chunks, run, local) \
  {#name, {{chunks, run}, {nullptr, nullptr}}, nullptr, local},
#define KERNEL_TWO(name, chunks, run, chunks2, run2, shared, local) \
  {#name, {{chunks, run}, {chunks2, run2}}, shared, local},
#define KERNEL_SPAN(name, chunks, span)                                                         \
  {#name, {{chunks, (span_run<span>)}, {nullptr, nullptr}}, nullptr, nullptr, nullptr, nullptr, \
   (span)},
#define KERNEL_CHAIN(name, chunks, run, local, rows, row)                                         \
  {#name, {{chunks, run}, {nullptr, nullptr}}, nullptr, local, nullptr, nullptr, nullptr, (rows), \
   (row)},
#define KERNEL_PRODUCT(name, chunks, pack, run, shared, local, owns, alike) \
  {#name, {{chunks, pack}, {product_chunks, run}}, shared, local, (owns), alike},
