// Argmax, top-k and top-p masks, top-k entries, and the walk of a sampling chain.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/elementwise.h"
#include "shared/params/row_policy.h"
#include "shared/params/rows.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/select.inl"

#include "backends/cpu/kernels/draw.inl"
#include "backends/cpu/kernels/exp_below.inl"
#include "backends/cpu/kernels/quotient.inl"

#include "backends/cpu/kernels/sample_chain.inl"
// clang-format on

KERNELS_BEGIN(select)
// clang-format off
KERNEL_TWO(argmax_f32, argmax_chunks, argmax_run, one_chunk, argmax_join, argmax_shared, nullptr)
KERNEL_CHAIN(top_k_mask_f32, mask_chunks, mask_run<false>, select_local, chain_rows, chain_run)
KERNEL_LOCAL(top_p_mask_f32, mask_chunks, mask_run<true>, select_local)
KERNEL_LOCAL(top_k_f32, mask_chunks, top_k_run, select_local)
KERNEL_CHAIN(row_top_k_mask, row_mask_chunks, row_mask_run<false>, select_local, row_chain_rows,
             row_chain_run)
KERNEL_LOCAL(row_top_p_mask, row_mask_chunks, row_mask_run<true>, select_local)
// clang-format on
KERNELS_END
}  // namespace ISA
