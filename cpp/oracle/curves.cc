// exp, tanh, sigmoid, softplus, gelu (CONTRACT E7; specs 007 for the budgets).
#include <numbers>

#include "oracle/node.h"
#include "oracle/orders.h"

namespace accel::oracle {

namespace {
struct Bounded {
  double value, budget;
};
}  // namespace

// One function element by element: `at` in double with its budget before the store, `f32` at a
// level. An f16 result is the f32 one rounded again.
template <class At, class F32>
static void map(Args& a, At at, F32 f32) {
  const bool f16 = a.call.results[0].dtype == DType::F16;
  for (size_t i = 0; i < a.out[0].size(); ++i) {
    const double x = a.in[0][i];
    if (a.level != Level::f64) {
      const float y = f32(float(x), a.level);
      a.out[0][i] = double(f16 ? f32_from_f16(f16_from_f32(y)) : y);
      continue;
    }
    Bounded y = at(x);
    store_f32(y.value, y.budget);
    if (!std::isfinite(y.value)) y.budget = 0;
    else if (f16 && a.budgets) store_f16(y.value, y.budget);
    a.out[0][i] = y.value;
    if (a.budgets) a.budget[0][i] = y.budget;
  }
}

// Below the normal range exp may be four subnormal steps off.
static Bounded exp_at(double x) {
  const double y = std::exp(x);
  return {y, kExp * y + 4 * kTiny};
}

static Bounded tanh_at(double x) {
  const double y = std::tanh(x);
  return {y, kTanh * std::abs(y) + 4 * kTiny};
}

// As silu: the error of e = exp(-x) counts by its share of 1 + e; where e leaves f32 the result is
// 0.
static Bounded sigmoid_at(double x) {
  const double e = std::exp(-x), y = 1 / (1 + e);
  const double share = e > kMaxF32 ? 1.0 : e / (1 + e);
  double budget = y * (kExp * share + kU + kDivide) * 1.0001 + 2 * kTiny;
  if (e > kMaxF32 / 2) budget += 0x1p-126;
  return {y, budget};
}

static Bounded softplus_at(double x) {
  const double e = std::exp(-std::abs(x)), log = std::log1p(e), y = std::max(x, 0.0) + log;
  if (std::isnan(x)) return {x, 0};
  return {y, (kExp * e / (1 + e) + kLog * log + kU * y) * 1.0001 + 12 * kTiny};
}

// What is left of x / 2 times 1 + s, where s errs by `error`.
static Bounded gelu_of(double x, double s, double error) {
  const double half = 0.5 * x, y = half * (1 + s);
  const double budget = std::abs(half) * (error + kU * (1 + s)) + kU * std::abs(y);
  return {y, budget * 1.0001 + 3 * kTiny};
}

// The argument t errs by 6u of itself: the division, and the root of 2 as an f32. The slope of erf
// falls with |t|, so the largest on the way is where t is least.
static Bounded gelu_erf_at(double x) {
  const double t = x / std::numbers::sqrt2, moved = 6.01 * kU;
  const double least = t * (1 - moved);
  const double slope = 2 * std::numbers::inv_sqrtpi * std::exp(-least * least);
  return gelu_of(x, std::erf(t), kErf + slope * moved * std::abs(t));
}

// x^3 and its factor are four roundings, the sum one, the outer factor two; both terms of the sum
// have one sign. Squares below the normal range are lost beside x.
static Bounded gelu_tanh_at(double x) {
  const double t = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  const double moved = 7.01 * kU, s = std::tanh(t);
  const double cosh = std::cosh(t * (1 - moved));
  return gelu_of(x, s, kTanh * std::abs(s) + moved * std::abs(t) / (cosh * cosh));
}

void eval_exp(Args& a) {
  map(a, exp_at, exp_f32);
}
void eval_tanh(Args& a) {
  map(a, tanh_at, tanh_f32);
}
void eval_sigmoid(Args& a) {
  map(a, sigmoid_at, sigmoid_f32);
}
void eval_softplus(Args& a) {
  map(a, softplus_at, softplus_f32);
}
void eval_gelu(Args& a) {
  if (a.attribute("form").s == "erf") map(a, gelu_erf_at, gelu_erf_f32);
  else map(a, gelu_tanh_at, gelu_tanh_f32);
}

}  // namespace accel::oracle
