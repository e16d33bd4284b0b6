// add, mul, scale, silu, swiglu, cast (CONTRACT 9), sub and clamp (E7).
#include <algorithm>

#include "oracle/node.h"
#include "oracle/orders.h"

namespace accel::oracle {

// Position in an operand of the result's element i: right-aligned, extents of 1 stay at 0.
static size_t broadcast_index(const Shape& result, const Shape& operand, int64_t i) {
  int64_t index = 0, step = 1;
  for (int back = 1; back <= result.rank(); ++back) {
    const int64_t extent = result[result.rank() - back];
    const int64_t at = i % extent;
    i /= extent;
    if (back > operand.rank()) continue;
    const int64_t own = operand[operand.rank() - back];
    if (own != 1) index += at * step;
    step *= own;
  }
  return size_t(index);
}

// f32 arithmetic rounds once; f16 is that value rounded again at the store.
static double exact(DType t, double v) {
  const float f = float(v);
  return double(t == DType::F16 ? f32_from_f16(f16_from_f32(f)) : f);
}

template <class F>
static void binary(Args& a, F f) {
  const Type& result = a.call.results[0];
  for (size_t i = 0; i < a.out[0].size(); ++i) {
    const double x = a.in[0][broadcast_index(result.shape, a.call.in[0].shape, int64_t(i))];
    const double y = a.in[1][broadcast_index(result.shape, a.call.in[1].shape, int64_t(i))];
    a.out[0][i] = exact(result.dtype, f(x, y));
  }
}

void eval_add(Args& a) {
  binary(a, [](double x, double y) { return x + y; });
}

void eval_sub(Args& a) {
  binary(a, [](double x, double y) { return x - y; });
}

void eval_mul(Args& a) {
  binary(a, [](double x, double y) { return x * y; });
}

void eval_scale(Args& a) {
  const double factor = double(a.scalar_f32("scalar_name"));
  for (size_t i = 0; i < a.out[0].size(); ++i)
    a.out[0][i] = exact(a.call.results[0].dtype, a.in[0][i] * factor);
}

// Relative error of x / (1 + exp(-x)), and the absolute one where exp(-x) leaves f32: the result is
// then -0.
static double silu_budget(double x, double y) {
  const double e = std::exp(-x);
  const double share = e > kMaxF32 ? 1.0 : e / (1 + e);
  double budget = std::abs(y) * (kExp * share + kU + kDivide) * 1.0001 + 2 * kTiny;
  if (e > kMaxF32 / 2) budget += std::abs(x) * 0x1p-126;
  return budget;
}

static double silu(double x) {
  if (x == -HUGE_VAL) return std::nan("");
  return x / (1 + std::exp(-x));
}

void eval_silu(Args& a) {
  const DType t = a.call.results[0].dtype;
  for (size_t i = 0; i < a.out[0].size(); ++i) {
    const double x = a.in[0][i];
    if (a.level != Level::f64) {
      a.out[0][i] = exact(t, double(silu_f32(float(x), a.level)));
      continue;
    }
    a.out[0][i] = silu(x);
    if (!a.budgets) continue;
    a.budget[0][i] = silu_budget(x, a.out[0][i]);
    if (t == DType::F16) store_f16(a.out[0][i], a.budget[0][i]);
  }
}

void eval_swiglu(Args& a) {
  const DType t = a.call.results[0].dtype;
  for (size_t i = 0; i < a.out[0].size(); ++i) {
    const double gate = a.in[0][i], value = a.in[1][i];
    if (a.level != Level::f64) {
      a.out[0][i] = exact(t, double(silu_f32(float(gate), a.level) * float(value)));
      continue;
    }
    const double y = silu(gate), r = y * value;
    a.out[0][i] = r;
    if (!a.budgets) continue;
    const double budget =
        silu_budget(gate, y) * std::abs(value) * (1 + kU) + kU * std::abs(r) + kTiny;
    a.budget[0][i] = unless_overflow(std::abs(r) * (1 + kU), budget);
    if (t == DType::F16) store_f16(a.out[0][i], a.budget[0][i]);
  }
}

void eval_clamp(Args& a) {
  const double low = double(a.attribute("low").f), high = double(a.attribute("high").f);
  for (size_t i = 0; i < a.out[0].size(); ++i) {
    const double x = a.in[0][i];
    a.out[0][i] = exact(a.call.results[0].dtype, x < low ? low : x > high ? high : x);
  }
}

void eval_cast(Args& a) {
  const DType t = a.call.results[0].dtype;
  for (size_t i = 0; i < a.out[0].size(); ++i) a.out[0][i] = exact(t, a.in[0][i]);
}

}  // namespace accel::oracle
