// matmul, linear, quant_matmul, int4_matvec, int4_matmul in both weight orders (CONTRACT 12, 13, E1
// to E3).
#include <algorithm>

#include "oracle/products.h"

namespace accel::oracle {

void f64_products(Args& a, const Product& p, std::span<const double> x, const WeightAt& weight,
                  std::span<const double> bias) {
  const double rounding = gamma(depth_of(a.order(), double(p.K)) + 1);
  for (int64_t m = p.row; m < p.row + p.M; ++m)
    for (int64_t n = 0; n < p.N; ++n) {
      double sum = 0, gross = 0, moved = 0;
      for (int64_t k = 0; k < p.K; ++k) {
        const Weight w = weight(p.flat(k, n));
        const double xk = x[size_t(m * p.K + k)];
        sum += xk * w.value;
        gross += std::abs(xk * w.value);
        moved += std::abs(xk) * w.error;
      }
      double budget = (rounding * (gross + moved) + moved) * 1.0001 + double(p.K) * kTiny;
      if (!bias.empty()) {
        sum += bias[size_t(n)];
        gross += std::abs(bias[size_t(n)]);
        budget += kU * (std::abs(sum) + budget);
      }
      a.out[0][size_t(m * p.N + n)] = sum;
      if (a.budgets) a.budget[0][size_t(m * p.N + n)] = unless_overflow(gross * (1 + 1e-4), budget);
    }
}

void f32_products(Args& a, const Product& p, std::span<const double> x,
                  const std::function<float(int64_t)>& weight, std::span<const double> bias) {
  std::vector<float> row(static_cast<size_t>(p.K)), column(static_cast<size_t>(p.K));
  const std::string_view order = a.order();
  for (int64_t n = 0; n < p.N; ++n) {
    for (int64_t k = 0; k < p.K; ++k) column[size_t(k)] = weight(p.flat(k, n));
    for (int64_t m = p.row; m < p.row + p.M; ++m) {
      for (int64_t k = 0; k < p.K; ++k) row[size_t(k)] = float(x[size_t(m * p.K + k)]);
      float sum = dot(order, a.level, row, column);
      if (!bias.empty()) sum += float(bias[size_t(n)]);
      a.out[0][size_t(m * p.N + n)] = double(sum);
    }
  }
}

static bool is_nk(const Args& a) {
  return a.attribute("w_order").s == "nk";
}

// ---------------------------------------------------------------- float weights

static void float_product(Args& a, std::span<const double> bias) {
  const auto x = a.operand("x"), w = a.operand("w");
  const Shape& xs = a.type("x").shape;
  const Shape& ws = a.type("w").shape;
  const bool nk = is_nk(a);
  const Product p{xs[0], xs[1], nk ? ws[0] : ws[1], nk};
  if (a.level == Level::f64)
    f64_products(
        a, p, x,
        [&](int64_t i) {
          return Weight{w[size_t(i)], 0};
        },
        bias);
  else
    f32_products(
        a, p, x, [&](int64_t i) { return float(w[size_t(i)]); }, bias);
}

void eval_matmul(Args& a) {
  float_product(a, {});
}
void eval_linear(Args& a) {
  float_product(a, a.operand("bias"));
}

// ---------------------------------------------------------------- int8 blocks

void eval_quant_matmul(Args& a) {
  const auto x = a.operand("x"), q = a.operand("w.quants"), s = a.operand("w.scales");
  const Shape& xs = a.type("x").shape;
  const Shape& ws = a.type("w.quants").shape;
  const bool nk = is_nk(a);
  const Product p{xs[0], xs[1], nk ? ws[0] : ws[1], nk};
  // 8 bits times 11 bits: the dequantized weight is exact in f32.
  const auto value = [&](int64_t i) { return q[size_t(i)] * s[size_t(i / 32)]; };
  if (a.level == Level::f64)
    f64_products(a, p, x, [&](int64_t i) { return Weight{value(i), 0}; }, {});
  else f32_products(a, p, x, [&](int64_t i) { return float(value(i)); }, {});
}

// ---------------------------------------------------------------- int4 groups

Int4Planes int4_planes(const Args& a) {
  const bool zeros = a.has("w.zeros");
  return {a.operand("w.codes"), a.operand("w.scales"), a.operand(zeros ? "w.zeros" : "w.biases"),
          zeros, a.call.group};
}

static void int4_product(Args& a, int64_t M) {
  const Int4Planes planes = int4_planes(a);
  const int64_t K = a.type("a").shape.back();
  const Product p{M, K, a.call.weights / K, is_nk(a)};
  if (a.level == Level::f64)
    f64_products(a, p, a.operand("a"), [&](int64_t i) { return planes.value(i); }, {});
  else
    f32_products(a, p, a.operand("a"), [&](int64_t i) { return planes.rounded(i, a.level); }, {});
}

void eval_int4_matvec(Args& a) {
  int4_product(a, 1);
}
void eval_int4_matmul(Args& a) {
  int4_product(a, a.type("a").shape[0]);
}

}  // namespace accel::oracle
