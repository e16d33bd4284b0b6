// int4_matvec: one activation row by int4 groups, zero points or biases; int4_matmul serves rank 2.
#include "ops/gpu.h"
#include "ops/products.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  const int64_t n = infer_int4_columns(c, 1, "int4_matmul");
  return {Type{DType::F32, {n}}};
}

static constexpr DType F32 = DType::F32, F16 = DType::F16, BF16 = DType::BF16;

extern const OpDef def_int4_matvec = {
    .op = Op::int4_matvec,
    .name = "int4_matvec",
    .doc =
        "Multiply the row a by int4 weights in groups and sum over K in f32.\n\n"
        "a is f32 [K], the result is f32 [N] with N = weights / K. A weight is\n"
        "(code - zero) * scale, or zero where the scale is 0; with biases it is\n"
        "scale * code + bias. Equal to a row of int4_matmul and to matmul over the\n"
        "dequantised weight, bit for bit. With activations, a is rounded first.",
    .operands = {{"a", "f32 [K]"},
                 {"w", "Int4: codes u32, scales and zeros or biases of one dtype", SlotKind::int4}},
    .attrs = {w_order_spec(), activations_spec()},
    .infer = infer,
    .params = int4_params,
    .kernels = with_rings(
        on_gpus({lane16_row("int4_matvec_nk_f16", int4_planes<true, F16, true>),
                 lane16_row("int4_matvec_nk_bf16", int4_planes<true, BF16, true>),
                 lane16_row("int4_matvec_nk_f32", int4_planes<true, F32, true>),
                 lane16_row("int4_matvec_nk_any_f16", int4_planes<true, F16, false>),
                 lane16_row("int4_matvec_nk_any_bf16", int4_planes<true, BF16, false>),
                 lane16_row("int4_matvec_nk_any_f32", int4_planes<true, F32, false>),
                 chain_row("int4_matvec_kn_f16", int4_planes<false, F16, false>),
                 chain_row("int4_matvec_kn_bf16", int4_planes<false, BF16, false>),
                 chain_row("int4_matvec_kn_f32", int4_planes<false, F32, false>),
                 panels_row("int4_matvec_kn_panels_f16", int4_panels<F16>, int4_panels_of),
                 panels_row("int4_matvec_kn_panels_bf16", int4_panels<BF16>, int4_panels_of),
                 panels_row("int4_matvec_kn_panels_f32", int4_panels<F32>, int4_panels_of),
                 int8_row("int4_matvec_int8_f16", int4_by_int8<F16>),
                 int8_row("int4_matvec_int8_bf16", int4_by_int8<BF16>),
                 int8_row("int4_matvec_int8_f32", int4_by_int8<F32>)},
                launch_product)),
    .tiles = true,
    .note = activations_note,
};

}  // namespace accel
