// Draws and penalties.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/penalties.h"
#include "shared/params/row_policy.h"
#include "shared/params/rows.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/draw.inl"

#include "backends/cpu/kernels/sampling.inl"
// clang-format on

KERNELS_BEGIN(sampling)
// clang-format off
KERNEL_TWO(sample_categorical_f32, sample_chunks, sample_totals, one_chunk, sample_pick,
           sample_shared, nullptr)
KERNEL(penalty_clear, vocab_chunks, penalty_clear_run)
KERNEL(penalty_count, one_chunk, penalty_count_run)
KERNEL(penalty_apply, vocab_chunks, penalty_apply_run)
KERNEL(row_bias, policy_chunks, row_bias_run)
KERNEL(row_penalty_count, policy_row_chunks, row_penalty_count_run)
KERNEL(row_penalty_apply, policy_chunks, row_penalty_apply_run)
KERNEL(row_scale, policy_chunks, row_scale_run)
KERNEL_TWO(row_draw, sample_chunks, sample_totals, one_chunk, row_draw_pick, sample_shared, nullptr)
// clang-format on
KERNELS_END
}  // namespace ISA
