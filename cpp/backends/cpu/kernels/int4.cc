// Products over int4 groups.
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
// clang-format on

KERNELS_BEGIN(int4)
// clang-format off
KERNEL_PRODUCT(int4_matvec_nk_f16, pack_chunks, quant_nk_pack<float>,
               (nk_int4<f16>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_nk_bf16, pack_chunks, quant_nk_pack<float>,
               (nk_int4<bf16>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_nk_f32, pack_chunks, quant_nk_pack<float>,
               (nk_int4<float>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_nk_any_f16, pack_chunks, quant_nk_pack<float>,
               (nk_any_int4<f16>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_nk_any_bf16, pack_chunks, quant_nk_pack<float>,
               (nk_any_int4<bf16>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_nk_any_f32, pack_chunks, quant_nk_pack<float>,
               (nk_any_int4<float>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_kn_f16, pack_chunks, quant_kn_pack<float>,
               (kn_int4<f16>), quant_kn_shared, kn_local,
               product_owns<kKnRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_kn_bf16, pack_chunks, quant_kn_pack<float>,
               (kn_int4<bf16>), quant_kn_shared, kn_local,
               product_owns<kKnRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_kn_f32, pack_chunks, quant_kn_pack<float>,
               (kn_int4<float>), quant_kn_shared, kn_local,
               product_owns<kKnRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_nk_f16, pack_chunks, quant_nk_pack<float>,
               (nk_int4<f16>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_nk_bf16, pack_chunks, quant_nk_pack<float>,
               (nk_int4<bf16>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_nk_f32, pack_chunks, quant_nk_pack<float>,
               (nk_int4<float>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_nk_any_f16, pack_chunks, quant_nk_pack<float>,
               (nk_any_int4<f16>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_nk_any_bf16, pack_chunks, quant_nk_pack<float>,
               (nk_any_int4<bf16>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_nk_any_f32, pack_chunks, quant_nk_pack<float>,
               (nk_any_int4<float>), quant_nk_shared, nk_local,
               product_owns<kNkRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_kn_f16, pack_chunks, quant_kn_pack<float>,
               (kn_int4<f16>), quant_kn_shared, kn_local,
               product_owns<kKnRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_kn_bf16, pack_chunks, quant_kn_pack<float>,
               (kn_int4<bf16>), quant_kn_shared, kn_local,
               product_owns<kKnRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_kn_f32, pack_chunks, quant_kn_pack<float>,
               (kn_int4<float>), quant_kn_shared, kn_local,
               product_owns<kKnRows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_int8_f16, int8_chunks, (int8_round<true, float>),
               (int4_by_int8<f16>), int8_shared, int8_local,
               product_owns<kInt8Rows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_int8_bf16, int8_chunks, (int8_round<true, float>),
               (int4_by_int8<bf16>), int8_shared, int8_local,
               product_owns<kInt8Rows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_int8_f32, int8_chunks, (int8_round<true, float>),
               (int4_by_int8<float>), int8_shared, int8_local,
               product_owns<kInt8Rows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_int8_f16, int8_chunks, (int8_round<true, float>),
               (int4_by_int8<f16>), int8_shared, int8_local,
               product_owns<kInt8Rows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_int8_bf16, int8_chunks, (int8_round<true, float>),
               (int4_by_int8<bf16>), int8_shared, int8_local,
               product_owns<kInt8Rows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_int8_f32, int8_chunks, (int8_round<true, float>),
               (int4_by_int8<float>), int8_shared, int8_local,
               product_owns<kInt8Rows>, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_kn_panels_f16, pack_chunks, quant_kn_pack<float>,
               (kn_int4_panels<f16>), quant_kn_shared, kn_local,
               panel_owns, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_kn_panels_bf16, pack_chunks, quant_kn_pack<float>,
               (kn_int4_panels<bf16>), quant_kn_shared, kn_local,
               panel_owns, quant_packs_alike)
KERNEL_PRODUCT(int4_matvec_kn_panels_f32, pack_chunks, quant_kn_pack<float>,
               (kn_int4_panels<float>), quant_kn_shared, kn_local,
               panel_owns, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_kn_panels_f16, pack_chunks, quant_kn_pack<float>,
               (kn_int4_panels<f16>), quant_kn_shared, kn_local,
               panel_owns, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_kn_panels_bf16, pack_chunks, quant_kn_pack<float>,
               (kn_int4_panels<bf16>), quant_kn_shared, kn_local,
               panel_owns, quant_packs_alike)
KERNEL_PRODUCT(int4_matmul_kn_panels_f32, pack_chunks, quant_kn_pack<float>,
               (kn_int4_panels<float>), quant_kn_shared, kn_local,
               panel_owns, quant_packs_alike)
// clang-format on
KERNELS_END
}  // namespace ISA
