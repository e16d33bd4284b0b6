// Draws and penalties.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/penalties.h"
#include "shared/params/rows.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/sampling.inl"
// clang-format on

KERNELS_BEGIN(sampling)
// clang-format off
KERNEL_TWO(sample_categorical_f32, sample_chunks, sample_totals, one_chunk, sample_pick,
           sample_shared, nullptr)
KERNEL(penalty_clear, vocab_chunks, penalty_clear_run)
KERNEL(penalty_count, one_chunk, penalty_count_run)
KERNEL(penalty_apply, vocab_chunks, penalty_apply_run)
// clang-format on
KERNELS_END
}  // namespace ISA
