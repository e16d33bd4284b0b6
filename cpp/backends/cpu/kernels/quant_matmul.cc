// Products over int8 blocks.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/matmul.h"
#include "shared/params/quant_matmul.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/product.inl"
#include "backends/cpu/kernels/product_nk.inl"
#include "backends/cpu/kernels/product_kn.inl"
#include "backends/cpu/kernels/quant_matmul.inl"
// clang-format on

KERNELS_BEGIN(quant_matmul)
// clang-format off
KERNEL_TWO(quant_matmul_nk_f32, pack_chunks, nk_pack<float>,
           product_chunks, (nk_int8<float>), nk_shared, nk_local)
KERNEL_TWO(quant_matmul_nk_f16, pack_chunks, nk_pack<f16>,
           product_chunks, (nk_int8<f16>), nk_shared, nk_local)
KERNEL_TWO(quant_matmul_nk_any_f32, pack_chunks, nk_pack<float>,
           product_chunks, (nk_any_int8<float>), nk_shared, nk_local)
KERNEL_TWO(quant_matmul_nk_any_f16, pack_chunks, nk_pack<f16>,
           product_chunks, (nk_any_int8<f16>), nk_shared, nk_local)
KERNEL_TWO(quant_matmul_kn_f32, pack_chunks, kn_pack<float>,
           product_chunks, (kn_int8<float>), kn_shared, kn_local)
KERNEL_TWO(quant_matmul_kn_f16, pack_chunks, kn_pack<f16>,
           product_chunks, (kn_int8<f16>), kn_shared, kn_local)
// clang-format on
KERNELS_END
}  // namespace ISA
