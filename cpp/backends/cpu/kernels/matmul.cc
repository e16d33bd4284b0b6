// matmul and linear, both weight orders.
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
#include "backends/cpu/kernels/matmul.inl"
// clang-format on

KERNELS_BEGIN(matmul)
// clang-format off
KERNEL_PRODUCT(matmul_nk_f32_f32, pack_chunks, nk_pack<float>,
               (nk_float<float, float, 2>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_nk_f32_f16, pack_chunks, nk_pack<float>,
               (nk_float<float, f16, 2>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_nk_f32_bf16, pack_chunks, nk_pack<float>,
               (nk_float<float, bf16, 2>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_nk_f16_f16, pack_chunks, nk_pack<f16>,
               (nk_float<f16, f16, 2>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_nk_f16_bf16, pack_chunks, nk_pack<f16>,
               (nk_float<f16, bf16, 2>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_kn_f32_f32, pack_chunks, kn_pack<float>,
               (kn_float<float, float, 2>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_kn_f32_f16, pack_chunks, kn_pack<float>,
               (kn_float<float, f16, 2>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_kn_f32_bf16, pack_chunks, kn_pack<float>,
               (kn_float<float, bf16, 2>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_kn_f16_f16, pack_chunks, kn_pack<f16>,
               (kn_float<f16, f16, 2>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(matmul_kn_f16_bf16, pack_chunks, kn_pack<f16>,
               (kn_float<f16, bf16, 2>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(linear_nk_f32_f32, pack_chunks, nk_pack<float>,
               (nk_float<float, float, 3>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(linear_nk_f32_f16, pack_chunks, nk_pack<float>,
               (nk_float<float, f16, 3>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(linear_nk_f32_bf16, pack_chunks, nk_pack<float>,
               (nk_float<float, bf16, 3>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(linear_nk_f16_f16, pack_chunks, nk_pack<f16>,
               (nk_float<f16, f16, 3>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(linear_nk_f16_bf16, pack_chunks, nk_pack<f16>,
               (nk_float<f16, bf16, 3>), nk_shared, nk_local,
               product_owns<kNkRows>, float_packs_alike)
KERNEL_PRODUCT(linear_kn_f32_f32, pack_chunks, kn_pack<float>,
               (kn_float<float, float, 3>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(linear_kn_f32_f16, pack_chunks, kn_pack<float>,
               (kn_float<float, f16, 3>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(linear_kn_f32_bf16, pack_chunks, kn_pack<float>,
               (kn_float<float, bf16, 3>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(linear_kn_f16_f16, pack_chunks, kn_pack<f16>,
               (kn_float<f16, f16, 3>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
KERNEL_PRODUCT(linear_kn_f16_bf16, pack_chunks, kn_pack<f16>,
               (kn_float<f16, bf16, 3>), kn_shared, kn_local,
               product_owns<kKnRows>, float_packs_alike)
// clang-format on
KERNELS_END
}  // namespace ISA
