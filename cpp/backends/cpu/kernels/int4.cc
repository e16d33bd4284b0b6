// Products over int4 groups.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/matmul.h"
#include "shared/params/quant_matmul.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/product.inl"
#include "backends/cpu/kernels/product_nk.inl"
#include "backends/cpu/kernels/product_kn.inl"
#include "backends/cpu/kernels/int4.inl"
// clang-format on

KERNELS_BEGIN(int4)
// clang-format off
KERNEL_TWO(int4_matvec_nk_f16, pack_chunks, nk_pack<float>,
           product_chunks, (nk_int4<f16>), nk_shared, nk_local)
KERNEL_TWO(int4_matvec_nk_bf16, pack_chunks, nk_pack<float>,
           product_chunks, (nk_int4<bf16>), nk_shared, nk_local)
KERNEL_TWO(int4_matvec_nk_f32, pack_chunks, nk_pack<float>,
           product_chunks, (nk_int4<float>), nk_shared, nk_local)
KERNEL_TWO(int4_matvec_nk_any_f16, pack_chunks, nk_pack<float>,
           product_chunks, (nk_any_int4<f16>), nk_shared, nk_local)
KERNEL_TWO(int4_matvec_nk_any_bf16, pack_chunks, nk_pack<float>,
           product_chunks, (nk_any_int4<bf16>), nk_shared, nk_local)
KERNEL_TWO(int4_matvec_nk_any_f32, pack_chunks, nk_pack<float>,
           product_chunks, (nk_any_int4<float>), nk_shared, nk_local)
KERNEL_TWO(int4_matvec_kn_f16, pack_chunks, kn_pack<float>,
           product_chunks, (kn_int4<f16>), kn_shared, kn_local)
KERNEL_TWO(int4_matvec_kn_bf16, pack_chunks, kn_pack<float>,
           product_chunks, (kn_int4<bf16>), kn_shared, kn_local)
KERNEL_TWO(int4_matvec_kn_f32, pack_chunks, kn_pack<float>,
           product_chunks, (kn_int4<float>), kn_shared, kn_local)
KERNEL_TWO(int4_matmul_nk_f16, pack_chunks, nk_pack<float>,
           product_chunks, (nk_int4<f16>), nk_shared, nk_local)
KERNEL_TWO(int4_matmul_nk_bf16, pack_chunks, nk_pack<float>,
           product_chunks, (nk_int4<bf16>), nk_shared, nk_local)
KERNEL_TWO(int4_matmul_nk_f32, pack_chunks, nk_pack<float>,
           product_chunks, (nk_int4<float>), nk_shared, nk_local)
KERNEL_TWO(int4_matmul_nk_any_f16, pack_chunks, nk_pack<float>,
           product_chunks, (nk_any_int4<f16>), nk_shared, nk_local)
KERNEL_TWO(int4_matmul_nk_any_bf16, pack_chunks, nk_pack<float>,
           product_chunks, (nk_any_int4<bf16>), nk_shared, nk_local)
KERNEL_TWO(int4_matmul_nk_any_f32, pack_chunks, nk_pack<float>,
           product_chunks, (nk_any_int4<float>), nk_shared, nk_local)
KERNEL_TWO(int4_matmul_kn_f16, pack_chunks, kn_pack<float>,
           product_chunks, (kn_int4<f16>), kn_shared, kn_local)
KERNEL_TWO(int4_matmul_kn_bf16, pack_chunks, kn_pack<float>,
           product_chunks, (kn_int4<bf16>), kn_shared, kn_local)
KERNEL_TWO(int4_matmul_kn_f32, pack_chunks, kn_pack<float>,
           product_chunks, (kn_int4<float>), kn_shared, kn_local)
// clang-format on
KERNELS_END
}  // namespace ISA
