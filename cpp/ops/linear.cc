// linear: matmul with an f32 bias added at the end, or none.
#include "ops/gpu.h"
#include "ops/products.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  const Type out = infer_float_product(c);
  if (c.in[2].present) require_type(c, 2, DType::F32, {out.shape[1]});
  return {out};
}

static constexpr DType F32 = DType::F32, F16 = DType::F16, BF16 = DType::BF16;

extern const OpDef def_linear = {
    .op = Op::linear,
    .name = "linear",
    .doc =
        "Multiply x by w, sum over K, then add bias[n]: add(matmul(x, w), bias), bit for bit.\n\n"
        "x is [M, K], w is [K, N] ('kn') or [N, K] ('nk'), bias is f32 [N] or None, the result is\n"
        "f32 [M, N]. Pairs (x, w) are those of matmul.",
    .operands = {{"x", "f32 or f16 [M, K]"},
                 {"w", "f32, f16 or bf16 [K, N], or [N, K] with w_order='nk'"},
                 {"bias", "f32 [N], or None", SlotKind::tensor, true, nullptr, true}},
    .attrs = {w_order_spec()},
    .infer = infer,
    .params = float_product_params,
    .kernels = with_matrix16(with_rings(
        with_matrix8(on_gpus({lane16_row("linear_nk_f32_f32", float_pair<true, F32, F32>),
                              lane16_row("linear_nk_f32_f16", float_pair<true, F32, F16>),
                              lane16_row("linear_nk_f32_bf16", float_pair<true, F32, BF16>),
                              lane16_row("linear_nk_f16_f16", float_pair<true, F16, F16>),
                              lane16_row("linear_nk_f16_bf16", float_pair<true, F16, BF16>),
                              chain_row("linear_kn_f32_f32", float_pair<false, F32, F32>),
                              chain_row("linear_kn_f32_f16", float_pair<false, F32, F16>),
                              chain_row("linear_kn_f32_bf16", float_pair<false, F32, BF16>),
                              chain_row("linear_kn_f16_f16", float_pair<false, F16, F16>),
                              chain_row("linear_kn_f16_bf16", float_pair<false, F16, BF16>)},
                             launch_product)))),
    .tiles = true,
};

}  // namespace accel
