// Products over rows ordered by expert.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/product.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/product.inl"
#include "backends/cpu/kernels/product_nk.inl"
#include "backends/cpu/kernels/product_few.inl"
#include "backends/cpu/kernels/transpose.inl"
#include "backends/cpu/kernels/product_lanes.inl"
#include "backends/cpu/kernels/product_kn.inl"
#include "backends/cpu/kernels/product_narrow.inl"
#include "backends/cpu/kernels/product_int8.inl"
#include "backends/cpu/kernels/product_int8_round.inl"
#include "backends/cpu/kernels/product_int8_tile.inl"
#include "backends/cpu/kernels/product_int8_stream.inl"
#include "backends/cpu/kernels/product_int8_run.inl"
#include "backends/cpu/kernels/product_panels.inl"
#include "backends/cpu/kernels/int4.inl"
#include "backends/cpu/kernels/quant_matmul.inl"
#include "backends/cpu/kernels/grouped.inl"
// clang-format on

KERNELS_BEGIN(grouped)
// clang-format off
KERNEL_LOCAL(grouped_matvec_nk_f32, grouped_chunks, (grouped_float<true, true, float>), nk_local)
KERNEL_LOCAL(grouped_matvec_nk_f16, grouped_chunks, (grouped_float<true, true, f16>), nk_local)
KERNEL_LOCAL(grouped_matvec_nk_bf16, grouped_chunks, (grouped_float<true, true, bf16>), nk_local)
KERNEL_LOCAL(grouped_matvec_nk_int4_f16,
             grouped_chunks, (grouped_nk_int4<true, f16>), grouped_nk_local)
KERNEL_LOCAL(grouped_matvec_nk_int4_bf16,
             grouped_chunks, (grouped_nk_int4<true, bf16>), grouped_nk_local)
KERNEL_LOCAL(grouped_matvec_nk_int4_f32,
             grouped_chunks, (grouped_nk_int4<true, float>), grouped_nk_local)
KERNEL_LOCAL(grouped_matvec_nk_any_int4_f16,
             grouped_chunks, (grouped_any_int4<true, true, f16>), grouped_nk_local)
KERNEL_LOCAL(grouped_matvec_nk_any_int4_bf16,
             grouped_chunks, (grouped_any_int4<true, true, bf16>), grouped_nk_local)
KERNEL_LOCAL(grouped_matvec_nk_any_int4_f32,
             grouped_chunks, (grouped_any_int4<true, true, float>), grouped_nk_local)
KERNEL_LOCAL(grouped_matvec_nk_int8, grouped_chunks, (grouped_nk_int8<true>), grouped_nk_local)
KERNEL_LOCAL(grouped_matvec_nk_any_int8,
             grouped_chunks, (grouped_any_int8<true, true>), grouped_nk_local)
KERNEL_LOCAL(grouped_matvec_kn_f32, grouped_chunks, (grouped_float<false, true, float>), kn_local)
KERNEL_LOCAL(grouped_matvec_kn_f16, grouped_chunks, (grouped_float<false, true, f16>), kn_local)
KERNEL_LOCAL(grouped_matvec_kn_bf16, grouped_chunks, (grouped_float<false, true, bf16>), kn_local)
KERNEL_LOCAL(grouped_matvec_kn_int4_f16,
             grouped_chunks, (grouped_any_int4<false, true, f16>), grouped_kn_local)
KERNEL_LOCAL(grouped_matvec_kn_int4_bf16,
             grouped_chunks, (grouped_any_int4<false, true, bf16>), grouped_kn_local)
KERNEL_LOCAL(grouped_matvec_kn_int4_f32,
             grouped_chunks, (grouped_any_int4<false, true, float>), grouped_kn_local)
KERNEL_LOCAL(grouped_matvec_kn_int8,
             grouped_chunks, (grouped_any_int8<false, true>), grouped_kn_local)
KERNEL_TWO(grouped_matmul_nk_f32, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_float<true, false, float>), nk_shared, nk_local)
KERNEL_TWO(grouped_matmul_nk_f16, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_float<true, false, f16>), nk_shared, nk_local)
KERNEL_TWO(grouped_matmul_nk_bf16, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_float<true, false, bf16>), nk_shared, nk_local)
KERNEL_TWO(grouped_matmul_nk_int4_f16, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_nk_int4<false, f16>), nk_shared, grouped_nk_local)
KERNEL_TWO(grouped_matmul_nk_int4_bf16, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_nk_int4<false, bf16>), nk_shared, grouped_nk_local)
KERNEL_TWO(grouped_matmul_nk_int4_f32, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_nk_int4<false, float>), nk_shared, grouped_nk_local)
KERNEL_TWO(grouped_matmul_nk_any_int4_f16, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_any_int4<true, false, f16>), nk_shared, grouped_nk_local)
KERNEL_TWO(grouped_matmul_nk_any_int4_bf16, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_any_int4<true, false, bf16>), nk_shared, grouped_nk_local)
KERNEL_TWO(grouped_matmul_nk_any_int4_f32, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_any_int4<true, false, float>), nk_shared, grouped_nk_local)
KERNEL_TWO(grouped_matmul_nk_int8, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_nk_int8<false>), nk_shared, grouped_nk_local)
KERNEL_TWO(grouped_matmul_nk_any_int8, pack_chunks, grouped_pack<true>,
           grouped_chunks, (grouped_any_int8<true, false>), nk_shared, grouped_nk_local)
KERNEL_TWO(grouped_matmul_kn_f32, pack_chunks, grouped_pack<false>,
           grouped_chunks, (grouped_float<false, false, float>), kn_shared, kn_local)
KERNEL_TWO(grouped_matmul_kn_f16, pack_chunks, grouped_pack<false>,
           grouped_chunks, (grouped_float<false, false, f16>), kn_shared, kn_local)
KERNEL_TWO(grouped_matmul_kn_bf16, pack_chunks, grouped_pack<false>,
           grouped_chunks, (grouped_float<false, false, bf16>), kn_shared, kn_local)
KERNEL_TWO(grouped_matmul_kn_int4_f16, pack_chunks, grouped_pack<false>,
           grouped_chunks, (grouped_any_int4<false, false, f16>), kn_shared, grouped_kn_local)
KERNEL_TWO(grouped_matmul_kn_int4_bf16, pack_chunks, grouped_pack<false>,
           grouped_chunks, (grouped_any_int4<false, false, bf16>), kn_shared, grouped_kn_local)
KERNEL_TWO(grouped_matmul_kn_int4_f32, pack_chunks, grouped_pack<false>,
           grouped_chunks, (grouped_any_int4<false, false, float>), kn_shared, grouped_kn_local)
KERNEL_TWO(grouped_matmul_kn_int8, pack_chunks, grouped_pack<false>,
           grouped_chunks, (grouped_any_int8<false, false>), kn_shared, grouped_kn_local)
KERNEL_TWO(grouped_matvec_int4_f16_by_int8, int8_chunks, (int8_round<true, float>),
           grouped_chunks, (grouped_int4_by_int8<f16>), int8_shared, int8_local)
KERNEL_TWO(grouped_matvec_int4_bf16_by_int8, int8_chunks, (int8_round<true, float>),
           grouped_chunks, (grouped_int4_by_int8<bf16>), int8_shared, int8_local)
KERNEL_TWO(grouped_matvec_int4_f32_by_int8, int8_chunks, (int8_round<true, float>),
           grouped_chunks, (grouped_int4_by_int8<float>), int8_shared, int8_local)
KERNEL_TWO(grouped_matvec_int8_by_int8, int8_chunks, (int8_round<false, float>),
           grouped_chunks, grouped_int8_by_int8, int8_shared, int8_local)
KERNEL_TWO(grouped_matmul_int4_f16_by_int8, int8_chunks, (int8_round<true, float>),
           grouped_chunks, (grouped_int4_by_int8<f16>), int8_shared, int8_local)
KERNEL_TWO(grouped_matmul_int4_bf16_by_int8, int8_chunks, (int8_round<true, float>),
           grouped_chunks, (grouped_int4_by_int8<bf16>), int8_shared, int8_local)
KERNEL_TWO(grouped_matmul_int4_f32_by_int8, int8_chunks, (int8_round<true, float>),
           grouped_chunks, (grouped_int4_by_int8<float>), int8_shared, int8_local)
KERNEL_TWO(grouped_matmul_int8_by_int8, int8_chunks, (int8_round<false, float>),
           grouped_chunks, grouped_int8_by_int8, int8_shared, int8_local)
// clang-format on
KERNELS_END
}  // namespace ISA
