// Operators that walk the rows of a tensor.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/rope.h"
#include "shared/params/rows.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/rows.inl"
// clang-format on

KERNELS_BEGIN(rows)
// clang-format off
KERNEL(rms_norm_f32, rows_chunks, rms_norm_run<float>)
KERNEL(rms_norm_f16, rows_chunks, rms_norm_run<f16>)
KERNEL_TWO(softmax_f32, softmax_chunks, softmax_run, softmax_divide_chunks, softmax_divide_run,
           softmax_shared, nullptr)
KERNEL_LOCAL(rope_f32, rope_chunks, rope_run, rope_local)
// clang-format on
KERNELS_END
}  // namespace ISA
