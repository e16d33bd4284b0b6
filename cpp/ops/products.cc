#include "ops/products.h"

namespace accel {

bool weight_is_nk(const Call& c) {
  return c.attr(w_order).s == "nk";
}

static std::string order_text(bool nk) {
  return nk ? "'nk'" : "'kn'";
}

// ---------------------------------------------------------------- rounded activations

static const char* const kActivations[] = {"", "f16", "bf16", "int8"};

Activations activations_of(const Call& c) {
  const Attr& a = c.attr(activations);
  if (!a.set) return Activations::wide;
  for (int i = 1; i < 4; ++i)
    if (a.s == kActivations[i]) return Activations(i);
  refuse_attr(c, activations, "None, 'int8', 'f16' or 'bf16'");
}

void require_activations(const Call& c, int64_t block) {
  if (activations_of(c) != Activations::int8) return;
  if (!weight_is_nk(c)) refuse_attr(c, w_order, "'nk' with activations='int8'");
  const int64_t k = c.in[0].shape.back();
  if (k % block)
    refuse(ErrorKind::shape, operand_name(c, 0),
           "is " + c.in[0].shape.to_string() + " with K " + std::to_string(k) +
               " and must have a multiple of " + std::to_string(block) +
               ", the weight's block, with activations='int8'");
}

const char* activations_note(const Call& c) {
  switch (activations_of(c)) {
    case Activations::f16:
      return "activations rounded to f16";
    case Activations::bf16:
      return "activations rounded to bf16";
    default:
      return nullptr;
  }
}

const char* rounds_to_int8(const Call& c) {
  return activations_of(c) == Activations::int8 ? "does not round activations to int8" : nullptr;
}
const char* keeps_activations(const Call& c) {
  return activations_of(c) == Activations::int8 ? nullptr : "rounds activations to int8";
}

// ---------------------------------------------------------------- layouts of the weight

const char* needs_plain(const Call& c, bool nk) {
  if (c.packed) return "reads plain planes";
  if (weight_is_nk(c) != nk) return nk ? "reads a weight in nk" : "reads a weight in kn";
  return rounds_to_int8(c);
}

const char* needs_panels(const Call& c, int64_t n, int64_t group) {
  if (!c.packed) return "reads packed planes";
  if (weight_is_nk(c)) return "reads a weight in kn";
  if (n % group) return "needs N to be a multiple of the group";
  return rounds_to_int8(c);
}

Packing panels_of(const Call& c, int64_t n, int64_t group) {
  const int64_t k = c.in[0].shape.back();
  return {"panels" + std::to_string(group) + " of " + Shape{k, n}.to_string(), k, n / group};
}
Packing int4_panels_of(const Call& c) {
  return panels_of(c, c.weights / c.in[0].shape.back(), c.group);
}

// ---------------------------------------------------------------- shapes

// K of a rank-2 weight against K of x; both shapes are shown.
static void require_same_k(const Call& c, int weight_slot, bool nk) {
  const Shape& x = c.in[0].shape;
  const Shape& w = c.in[size_t(weight_slot)].shape;
  if (w[nk ? 1 : 0] == x[1]) return;
  const std::string k = std::to_string(x[1]);
  refuse_shape(c, weight_slot,
               (nk ? "[N " + k + "]" : "[" + k + " N]") + " with w_order " + order_text(nk) +
                   ", because " + operand_name(c, 0) + " is " + x.to_string());
}

static void require_float_pair(const Call& c) {
  require_dtype_in(c, 0, {DType::F32, DType::F16});
  require_dtype_in(c, 1, {DType::F32, DType::F16, DType::BF16});
  if (c.in[0].dtype == DType::F16 && c.in[1].dtype == DType::F32)
    refuse(ErrorKind::dtype, "w",
           "is f32 and must be f16 or bf16, because the weight is wider than the activation, which "
           "is f16; "
           "cast(x, f32) makes the pair f32 by f32");
}

Type infer_float_product(const Call& c) {
  const bool nk = is_nk(c, w_order);
  require_rank(c, 0, 2);
  require_rank(c, 1, 2);
  require_same_k(c, 1, nk);
  require_float_pair(c);
  return {DType::F32, {c.in[0].shape[0], c.in[1].shape[nk ? 0 : 1]}};
}

void float_product_params(const Call& c, Params& p) {
  ProductParams m = {};
  m.M = unsigned(c.in[0].shape[0]);
  m.K = unsigned(c.in[0].shape[1]);
  m.N = unsigned(c.results[0].shape[1]);
  m.nk = weight_is_nk(c);
  m.bias = c.in.size() > 2 && c.in[2].present;
  p.put(m);
}

int64_t infer_int4_columns(const Call& c, int rank, const char* other) {
  is_nk(c, w_order);
  require_int4_planes(c, 1);
  require_dtype(c, 0, DType::F32);
  const Shape& a = c.in[0].shape;
  if (c.weights % a.back() != 0)
    refuse(ErrorKind::shape, "w.weights",
           "is " + std::to_string(c.weights) + " and must be a multiple of K, which is " +
               std::to_string(a.back()) + ", because a is " + a.to_string());
  if (a.rank() != rank)
    refuse_shape(c, 0,
                 "of rank " + std::to_string(rank) +
                     (a.rank() == 3 - rank
                          ? std::string("; ") + other + " takes rank " + std::to_string(a.rank())
                          : ""));
  require_activations(c, c.group);
  return c.weights / a.back();
}

void int4_params(const Call& c, Params& p) {
  ProductParams q = {};
  const Shape& a = c.in[0].shape;
  q.M = a.rank() == 2 ? unsigned(a[0]) : 1;
  q.K = unsigned(a.back());
  q.N = unsigned(c.results[0].shape.back());
  q.nk = weight_is_nk(c);
  q.group = unsigned(c.group);
  q.zeros = c.in[3].present;
  q.activations = unsigned(activations_of(c));
  p.put(q);
}

}  // namespace accel
