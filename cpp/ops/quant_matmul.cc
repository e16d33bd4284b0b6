// quant_matmul: float activations by int8 blocks of 32 over the weight's flat index; each weight is
// s * q in f32.
#include "ops/gpu.h"
#include "ops/products.h"

namespace accel {

static constexpr int kQuants = 1, kScales = 2;
static constexpr int64_t kBlock = 32;

static std::vector<Type> infer(const Call& c) {
  const bool nk = is_nk(c, w_order);
  require_rank(c, 0, 2);
  require_rank(c, kQuants, 2);
  const Shape& x = c.in[0].shape;
  const Shape& quants = c.in[kQuants].shape;
  const std::string k = std::to_string(x[1]);
  if (quants[nk ? 1 : 0] != x[1])
    refuse_shape(c, kQuants,
                 (nk ? "[N " + k + "] with w_order 'nk'" : "[" + k + " N] with w_order 'kn'") +
                     ", because x is " + x.to_string());
  require_dtype_in(c, 0, {DType::F32, DType::F16});
  require_dtype(c, kQuants, DType::I8);
  require_dtype(c, kScales, DType::F16);
  require_scales(c, kScales, (quants.elements() + kBlock - 1) / kBlock);
  require_activations(c, kBlock);
  return {Type{DType::F32, {x[0], quants[nk ? 0 : 1]}}};
}

static void params(const Call& c, Params& p) {
  ProductParams q = {};
  q.M = unsigned(c.in[0].shape[0]);
  q.K = unsigned(c.in[0].shape[1]);
  q.N = unsigned(c.results[0].shape[1]);
  q.nk = weight_is_nk(c);
  q.group = unsigned(kBlock);
  q.activations = unsigned(activations_of(c));
  p.put(q);
}

template <DType X>
static const char* reads(const Call& c) {
  if (c.in[0].dtype == X) return nullptr;
  return X == DType::F32 ? "reads f32 activations" : "reads f16 activations";
}
template <DType X>
static const char* by_int8(const Call& c, const Limits&) {
  if (const char* why = keeps_activations(c)) return why;
  return reads<X>(c);
}
static int64_t columns(const Call& c) {
  return c.in[kQuants].shape[weight_is_nk(c) ? 0 : 1];
}
static Packing packing(const Call& c) {
  return panels_of(c, columns(c), kBlock);
}
template <DType X>
static const char* by_panels(const Call& c, const Limits&) {
  if (const char* why = needs_panels(c, columns(c), kBlock)) return why;
  return reads<X>(c);
}
template <bool NK, DType X, bool Whole>
static const char* reject(const Call& c, const Limits&) {
  if (const char* why = needs_plain(c, NK)) return why;
  if (const char* why = reads<X>(c)) return why;
  if (Whole && c.in[0].shape[1] % kBlock != 0) return "needs K to be a multiple of 32";
  return nullptr;
}

static constexpr DType F32 = DType::F32, F16 = DType::F16;

extern const OpDef def_quant_matmul = {
    .op = Op::quant_matmul,
    .name = "quant_matmul",
    .doc =
        "Multiply x by int8 weights in blocks of 32 and sum over K in f32.\n\n"
        "x is [M, K], w.quants is i8 [K, N] ('kn') or [N, K] ('nk'), w.scales has one f16\n"
        "entry for 32 weights of the flat array, the result is f32 [M, N]. Equal to matmul\n"
        "over quants * scales, bit for bit. With activations, x is rounded first.",
    .operands = {{"x", "f32 or f16 [M, K]"},
                 {"w", "Quantized: quants i8 [K, N] or [N, K], scales f16", SlotKind::quantized}},
    .attrs = {w_order_spec(), activations_spec()},
    .infer = infer,
    .params = params,
    .kernels =
        with_rings(on_gpus({lane16_row("quant_matmul_nk_f32", reject<true, F32, true>),
                            lane16_row("quant_matmul_nk_f16", reject<true, F16, true>),
                            lane16_row("quant_matmul_nk_any_f32", reject<true, F32, false>),
                            lane16_row("quant_matmul_nk_any_f16", reject<true, F16, false>),
                            chain_row("quant_matmul_kn_f32", reject<false, F32, false>),
                            chain_row("quant_matmul_kn_f16", reject<false, F16, false>),
                            panels_row("quant_matmul_kn_panels_f32", by_panels<F32>, packing),
                            panels_row("quant_matmul_kn_panels_f16", by_panels<F16>, packing),
                            int8_row("quant_matmul_int8_f32", by_int8<F32>),
                            int8_row("quant_matmul_int8_f16", by_int8<F16>)},
                           launch_product)),
    .tiles = true,
    .note = activations_note,
};

}  // namespace accel
