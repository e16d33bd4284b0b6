#include "ops/grouped.h"

#include "shared/params/product.h"

namespace accel {

static constexpr int64_t kInt8Block = 32;

// Axes of a weight of rank 3 against counts and K; N of it.
static int64_t columns_of(const Call& c, int slot, bool nk) {
  const Shape &x = c.in[kGroupedX].shape, &w = c.in[size_t(slot)].shape;
  const std::string k = std::to_string(x[1]);
  if (w[nk ? 2 : 1] != x[1])
    refuse_shape(c, slot,
                 std::string(nk ? "[E N " + k + "] with w_order 'nk'"
                                : "[E " + k + " N] with w_order 'kn'") +
                     ", because x is " + x.to_string());
  return w[nk ? 1 : 2];
}

static void require_experts(const Call& c, int slot) {
  const Shape& w = c.in[size_t(slot)].shape;
  if (w.rank() == 3 && !(c.in[kGroupedCounts].shape == Shape{w[0]}))
    refuse_shape(c, kGroupedCounts,
                 "[" + std::to_string(w[0]) + "], one entry an expert of " + operand_name(c, slot) +
                     " " + w.to_string());
}

static int64_t infer_float(const Call& c, bool nk) {
  require_experts(c, kGroupedW);
  require_dtype(c, kGroupedX, DType::F32);
  require_dtype_in(c, kGroupedW, {DType::F32, DType::F16, DType::BF16});
  require_rank(c, kGroupedX, 2);
  require_rank(c, kGroupedW, 3);
  return columns_of(c, kGroupedW, nk);
}

static int64_t infer_int8(const Call& c, bool nk) {
  require_experts(c, kGroupedQuants);
  require_dtype(c, kGroupedX, DType::F32);
  require_dtype(c, kGroupedQuants, DType::I8);
  require_dtype(c, kGroupedScales, DType::F16);
  require_rank(c, kGroupedX, 2);
  require_rank(c, kGroupedQuants, 3);
  const int64_t n = columns_of(c, kGroupedQuants, nk);
  const int64_t weights = c.in[kGroupedQuants].shape.elements();
  require_scales(c, kGroupedScales, (weights + kInt8Block - 1) / kInt8Block);
  return n;
}

static int64_t infer_int4(const Call& c) {
  require_int4_planes(c, kGroupedCodes);
  require_rank(c, kGroupedCounts, 1);
  require_dtype(c, kGroupedX, DType::F32);
  require_rank(c, kGroupedX, 2);
  const int64_t experts = c.in[kGroupedCounts].shape[0], k = c.in[kGroupedX].shape[1];
  if (c.weights % experts || c.weights / experts % k)
    refuse(ErrorKind::shape, "w.weights",
           "is " + std::to_string(c.weights) + " and must be a multiple of E * K, which is " +
               std::to_string(experts) + " * " + std::to_string(k) + ", because counts is " +
               c.in[kGroupedCounts].shape.to_string() + " and x is " +
               c.in[kGroupedX].shape.to_string());
  return c.weights / experts / k;
}

static void require_grouped_activations(const Call& c) {
  if (!c.in[kGroupedW].present)
    return require_activations(c, c.in[kGroupedCodes].present ? c.group : kInt8Block);
  if (activations_of(c) != Activations::wide)
    refuse_attr(c, activations, "None, because w is no Int4 and no Quantized");
}

std::vector<Type> infer_grouped(const Call& c) {
  const bool nk = is_nk(c, w_order);
  require_dtype(c, kGroupedCounts, DType::U32);
  const int64_t n = c.in[kGroupedW].present       ? infer_float(c, nk)
                    : c.in[kGroupedCodes].present ? infer_int4(c)
                                                  : infer_int8(c, nk);
  require_grouped_activations(c);
  if (c.in[kGroupedBias].present)
    require_type(c, kGroupedBias, DType::F32, {c.in[kGroupedCounts].shape[0], n});
  return {Type{DType::F32, {c.in[kGroupedX].shape[0], n}}};
}

void grouped_params(const Call& c, Params& p) {
  ProductParams g = {};
  g.M = unsigned(c.in[kGroupedX].shape[0]);
  g.K = unsigned(c.in[kGroupedX].shape[1]);
  g.N = unsigned(c.results[0].shape[1]);
  g.nk = weight_is_nk(c);
  g.experts = unsigned(c.in[kGroupedCounts].shape[0]);
  g.group = unsigned(c.in[kGroupedCodes].present ? c.group : kInt8Block);
  g.zeros = c.in[kGroupedZeros].present;
  g.activations = unsigned(activations_of(c));
  g.bias = c.in[kGroupedBias].present;
  p.put(g);
}

std::vector<OperandSpec> grouped_operands() {
  return {{"x", "f32 [T, K], rows ordered by expert"},
          {"w",
           "f32, f16 or bf16 [E, K, N], or [E, N, K] with w_order='nk'; or an Int4 or Quantized "
           "of it",
           SlotKind::weight},
          {"counts", "u32 [E]: rows of each expert"},
          {"bias", "f32 [E, N], or None", SlotKind::tensor, true}};
}

static KernelRow grouped_row(const char* kernel, Reject reject, const char* order,
                             const char* reason) {
  return {Backend::cpu, kernel, reject, order, reason, kernel};
}
KernelRow grouped_lane16(const char* kernel, Reject reject) {
  return grouped_row(kernel, reject, "lane16", "order lane16, as matmul over each expert's rows");
}
KernelRow grouped_chain(const char* kernel, Reject reject) {
  return grouped_row(kernel, reject, "chain", "order chain, as matmul over each expert's rows");
}

}  // namespace accel
