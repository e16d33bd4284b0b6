// Copies, gathers and scatters: bytes that move.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/concat.h"
#include "shared/params/contiguous.h"
#include "shared/params/copy.h"
#include "shared/params/gather_rows.h"
#include "shared/params/rows.h"
#include "shared/params/scatter_rows.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/moves.inl"
// clang-format on

KERNELS_BEGIN(moves)
// clang-format off
// Functions stand in the *.inl files; null where there is no scratch.
KERNEL(copy_bytes, copy_chunks, copy_run)
KERNEL(contiguous_1, contiguous_chunks, contiguous_run<u8>)
KERNEL(contiguous_2, contiguous_chunks, contiguous_run<u16>)
KERNEL(contiguous_4, contiguous_chunks, contiguous_run<u32>)
KERNEL(gather_rows_f32, gather_chunks, gather_rows_run<float>)
KERNEL(gather_rows_f16, gather_chunks, gather_rows_run<f16>)
KERNEL(gather_rows_bf16, gather_chunks, gather_rows_run<bf16>)
KERNEL(quant_gather_rows, gather_chunks, quant_gather_rows_run)
KERNEL(scatter_rows_4, scatter_chunks, scatter_rows_run<u32>)
KERNEL(scatter_rows_2, scatter_chunks, scatter_rows_run<u16>)
KERNEL(take_4, take_chunks, take_run<u32>)
KERNEL(take_2, take_chunks, take_run<u16>)
KERNEL(concat_4, concat_chunks, concat_run<u32>)
KERNEL(concat_2, concat_chunks, concat_run<u16>)
KERNEL(concat_1, concat_chunks, concat_run<u8>)
// clang-format on
KERNELS_END
}  // namespace ISA
