// Operators that walk the rows of a tensor.
#include "shared/params/rows.h"
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/rope.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/quotient.inl"
#include "backends/cpu/kernels/rows.inl"
// clang-format on

KERNELS_BEGIN(rows)
// clang-format off
KERNEL(rms_norm_f32, rows_chunks, rms_norm_run<float>)
KERNEL(rms_norm_f16, rows_chunks, rms_norm_run<f16>)
KERNEL_TWO(softmax_f32, softmax_chunks, softmax_run<false>, softmax_finish_chunks,
           softmax_finish_run<false>, softmax_shared, nullptr)
KERNEL_LOCAL(rope_f32, rope_chunks, rope_run, rope_local)
KERNEL_TWO(log_softmax_f32, softmax_chunks, softmax_run<true>, softmax_finish_chunks,
           softmax_finish_run<true>, softmax_shared, nullptr)
KERNEL(l2_norm_f32, rows_chunks, l2_norm_run)
// clang-format on
KERNELS_END
}  // namespace ISA
