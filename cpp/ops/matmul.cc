// matmul: rank 2 by rank 2, f32 sums, f32 result; the dtype pairs of the float kernels.
#include "ops/gpu.h"
#include "ops/products.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  return {infer_float_product(c)};
}

static constexpr DType F32 = DType::F32, F16 = DType::F16, BF16 = DType::BF16;

extern const OpDef def_matmul = {
    .op = Op::matmul,
    .name = "matmul",
    .doc =
        "Multiply x by w and sum over K: out[m, n] is the sum of x[m, k] * w[k, n].\n\n"
        "x is [M, K], w is [K, N] ('kn') or [N, K] ('nk'), the result is f32 [M, N]. Pairs (x, "
        "w):\n"
        "f32 by f32, and f32 or f16 by f16 or bf16. Every operand enters exactly as stored; sums\n"
        "are f32, and a row of the result depends on that row of x alone.",
    .operands = {{"x", "f32 or f16 [M, K]"},
                 {"w", "f32, f16 or bf16 [K, N], or [N, K] with w_order='nk'"}},
    .attrs = {w_order_spec()},
    .infer = infer,
    .params = float_product_params,
    .kernels = with_matrix16(with_rings(
        with_matrix8(on_gpus({lane16_row("matmul_nk_f32_f32", float_pair<true, F32, F32>),
                              lane16_row("matmul_nk_f32_f16", float_pair<true, F32, F16>),
                              lane16_row("matmul_nk_f32_bf16", float_pair<true, F32, BF16>),
                              lane16_row("matmul_nk_f16_f16", float_pair<true, F16, F16>),
                              lane16_row("matmul_nk_f16_bf16", float_pair<true, F16, BF16>),
                              chain_row("matmul_kn_f32_f32", float_pair<false, F32, F32>),
                              chain_row("matmul_kn_f32_f16", float_pair<false, F32, F16>),
                              chain_row("matmul_kn_f32_bf16", float_pair<false, F32, BF16>),
                              chain_row("matmul_kn_f16_f16", float_pair<false, F16, F16>),
                              chain_row("matmul_kn_f16_bf16", float_pair<false, F16, BF16>)},
                             launch_product)))),
    .tiles = true,
};

}  // namespace accel
