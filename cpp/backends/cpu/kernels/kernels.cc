// The CPU kernels of one instruction set, compiled once for each (-DISA=base|avx2|avx512|neon with
// its flags). No standard header and nothing but static functions in the namespace of the
// instruction set: a symbol shared by objects of different instruction sets would be merged by the
// linker, and the baseline would run AVX-512 code.
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
#include "shared/params/attention.h"
#include "shared/params/contiguous.h"
#include "shared/params/copy.h"
#include "shared/params/elementwise.h"
#include "shared/params/gather_rows.h"
#include "shared/params/matmul.h"
#include "shared/params/penalties.h"
#include "shared/params/quant_matmul.h"
#include "shared/params/rope.h"
#include "shared/params/rows.h"
#include "shared/params/scatter_rows.h"

namespace ISA {
using accel_cpu::KernelArgs;

#include "backends/cpu/kernels/vec.h"

#include "backends/cpu/kernels/math_vec.h"

// One line a file, helpers before their users.
// clang-format off
#include "backends/cpu/kernels/chunks.inl"
#include "backends/cpu/kernels/elementwise.inl"
#include "backends/cpu/kernels/moves.inl"
#include "backends/cpu/kernels/rows.inl"
#include "backends/cpu/kernels/attention.inl"
#include "backends/cpu/kernels/select.inl"
#include "backends/cpu/kernels/sampling.inl"
#include "backends/cpu/kernels/product.inl"
#include "backends/cpu/kernels/product_nk.inl"
#include "backends/cpu/kernels/product_kn.inl"
#include "backends/cpu/kernels/matmul.inl"
#include "backends/cpu/kernels/quant_matmul.inl"
#include "backends/cpu/kernels/int4.inl"
// clang-format on

#define KERNEL(name, chunks, run) {#name, {{chunks, run}, {nullptr, nullptr}}, nullptr, nullptr},
#define KERNEL_LOCAL(name, chunks, run, local) \
  {#name, {{chunks, run}, {nullptr, nullptr}}, nullptr, local},
#define KERNEL_TWO(name, chunks, run, chunks2, run2, shared, local) \
  {#name, {{chunks, run}, {chunks2, run2}}, shared, local},
static const accel_cpu::Kernel kernels[] = {
#include "backends/cpu/kernels/list.inc"
    {nullptr, {{nullptr, nullptr}, {nullptr, nullptr}}, nullptr, nullptr}};

}  // namespace ISA

#define ACCEL_TEXT(x) #x
#define ACCEL_NAME_OF(x) ACCEL_TEXT(x)
#define ACCEL_JOIN(a, b) a##b
#define ACCEL_TABLE(isa) ACCEL_JOIN(accel_kernels_, isa)
#if ACCEL_ISA_base
#define ACCEL_LEVEL "base"
#else
#define ACCEL_LEVEL "fma"
#endif
extern "C" {
extern const accel_cpu::KernelTable ACCEL_TABLE(ISA);
const accel_cpu::KernelTable ACCEL_TABLE(ISA) = {ACCEL_NAME_OF(ISA), ACCEL_LEVEL, ISA::kernels};
}
