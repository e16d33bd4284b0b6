// rms_norm, softmax, rope (CONTRACT 11), log_softmax, l2_norm (E7).
#include <algorithm>

#include "oracle/node.h"
#include "oracle/orders.h"

namespace accel::oracle {

// ---------------------------------------------------------------- rms_norm

static void rms_norm_row(Args& a, const double* x, const double* gain, size_t begin, int64_t width,
                         double eps) {
  double sum = 0, gross = 0;
  for (int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
  gross = sum;
  // Above f32 the sum is infinite and its inverse root zero: the category is what can be promised.
  if (sum > kMaxF32) sum = HUGE_VAL;
  const double mean = sum / double(width), root = 1 / std::sqrt(mean + eps);
  const bool f16 = a.call.results[0].dtype == DType::F16;
  // Squares below the normal range lose one subnormal step each.
  const double lost = 2 * kTiny / (mean + eps);
  const double relative =
      (gamma(depth_of(a.order(), double(width)) + 1) + kDivide + kU + lost) / 2 + kRsqrt + 2 * kU;
  for (int64_t i = 0; i < width; ++i) {
    const double y = x[i] * root * gain[i];
    a.out[0][begin + size_t(i)] = y;
    if (!a.budgets) continue;
    double& budget = a.budget[0][begin + size_t(i)];
    budget = std::abs(y) * relative * 1.0001 + kTiny * (1 + std::abs(gain[i]));
    budget = unless_overflow(gross * (1 + 1e-4), budget);
    if (f16) store_f16(a.out[0][begin + size_t(i)], budget);
  }
}

void eval_rms_norm(Args& a) {
  const auto x = a.operand("x"), gain = a.operand("gain");
  const int64_t width = a.type("x").shape.back();
  const float eps = a.attribute("eps").f;
  for (size_t begin = 0; begin < x.size(); begin += size_t(width)) {
    if (a.level == Level::f64) rms_norm_row(a, &x[begin], gain.data(), begin, width, double(eps));
    else rms_norm_f32(a, &x[begin], gain.data(), begin, width, eps);
  }
}

// ---------------------------------------------------------------- l2_norm

static void l2_norm_row(Args& a, const double* x, size_t begin, int64_t width, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < width; ++i) sum += x[i] * x[i];
  // As in rms_norm, without the division by the width.
  if (sum > kMaxF32) sum = HUGE_VAL;
  const double root = 1 / std::sqrt(sum + eps);
  const double lost = double(width) * kTiny / (sum + eps);
  const double relative =
      (gamma(depth_of(a.order(), double(width)) + 1) + kU + lost) / 2 + kRsqrt + kU;
  for (int64_t i = 0; i < width; ++i) {
    const double y = x[i] * root;
    a.out[0][begin + size_t(i)] = y;
    if (a.budgets)
      a.budget[0][begin + size_t(i)] =
          unless_overflow(sum * (1 + 1e-4), std::abs(y) * relative * 1.0001 + kTiny);
  }
}

void eval_l2_norm(Args& a) {
  const int64_t width = a.call.in[0].shape.back();
  const float eps = a.attribute("eps").f;
  for (size_t begin = 0; begin < a.in[0].size(); begin += size_t(width)) {
    if (a.level == Level::f64) l2_norm_row(a, &a.in[0][begin], begin, width, double(eps));
    else l2_norm_f32(a, &a.in[0][begin], begin, width, eps);
  }
}

// ---------------------------------------------------------------- softmax

// Error of e_i = exp(x_i - max) relative to itself: the difference is rounded, then exp has its
// ceiling.
static double exp_error(double x, double max) {
  return std::expm1(kU * (max - x)) + kExp;
}

namespace {
// One row's maximum, sum of exponentials and what the sum's terms err by; a row that gives NaN is
// special.
struct SoftmaxRow {
  double max = -HUGE_VAL, sum = 0, sum_error = 0;
  bool special = false;
  SoftmaxRow(const double* x, int64_t width) {
    for (int64_t i = 0; i < width; ++i) {
      if (std::isnan(x[i]) || x[i] == HUGE_VAL) special = true;
      max = std::max(max, x[i]);
    }
    special = special || max == -HUGE_VAL;
    for (int64_t i = 0; i < width && !special; ++i) {
      const double e = std::exp(x[i] - max);
      sum += e;
      if (e > 0) sum_error += e * exp_error(x[i], max);
    }
  }
};
}  // namespace

static void softmax_row(Args& a, const double* x, size_t begin, int64_t width) {
  const SoftmaxRow row(x, width);
  const double common =
      row.sum_error / row.sum + gamma(depth_of(a.order(), double(width))) + kDivide;
  for (int64_t i = 0; i < width; ++i) {
    const double p = row.special ? std::nan("") : std::exp(x[i] - row.max) / row.sum;
    a.out[0][begin + size_t(i)] = p;
    if (!a.budgets || row.special) continue;
    // Below the normal range exp may be four subnormal steps off.
    const double own = p > 0 ? p * (exp_error(x[i], row.max) + common) * 1.0001 : 0;
    a.budget[0][begin + size_t(i)] = own + 6 * kTiny;
  }
}

void eval_softmax(Args& a) {
  const int64_t width = a.call.in[0].shape.back();
  for (size_t begin = 0; begin < a.in[0].size(); begin += size_t(width)) {
    if (a.level == Level::f64) softmax_row(a, &a.in[0][begin], begin, width);
    else softmax_f32(a, &a.in[0][begin], begin, width);
  }
}

// The sum is 1 or more, so its relative error is what its logarithm errs by; the terms below the
// normal range add four steps each.
static void log_softmax_row(Args& a, const double* x, size_t begin, int64_t width) {
  const SoftmaxRow row(x, width);
  const double log = std::log(row.sum);
  const double moved = row.sum_error / row.sum + gamma(depth_of(a.order(), double(width))) +
                       4 * kTiny * double(width);
  for (int64_t i = 0; i < width; ++i) {
    const double difference = x[i] - row.max, y = difference - log;
    a.out[0][begin + size_t(i)] = row.special ? std::nan("") : y;
    if (!a.budgets || row.special) continue;
    const double budget =
        (kU * std::abs(difference) + moved + kLog * log + kU * std::abs(y)) * 1.0001 + 4 * kTiny;
    a.budget[0][begin + size_t(i)] = unless_overflow(std::abs(y), budget);
  }
}

void eval_log_softmax(Args& a) {
  const int64_t width = a.call.in[0].shape.back();
  for (size_t begin = 0; begin < a.in[0].size(); begin += size_t(width)) {
    if (a.level == Level::f64) log_softmax_row(a, &a.in[0][begin], begin, width);
    else log_softmax_f32(a, &a.in[0][begin], begin, width);
  }
}

// ---------------------------------------------------------------- rope

// f_k = f32(exp(-2k / rotary_dim * ln base)), or the given table.
static float frequency(const Args& a, int64_t k, int64_t rotary_dim) {
  if (a.has("frequencies")) return float(a.operand("frequencies")[size_t(k)]);
  const double base = double(a.scalar_f32("base_name"));
  return float(std::exp(-2.0 * double(k) / double(rotary_dim) * std::log(base)));
}

static void rotate(Args& a, size_t first, size_t second, float theta) {
  const double x = a.operand("x")[first], y = a.operand("x")[second];
  if (a.level != Level::f64) {
    const float c = cos_f32(theta, a.level), s = sin_f32(theta, a.level);
    a.out[0][first] = double(float(x) * c - float(y) * s);
    a.out[0][second] = double(float(x) * s + float(y) * c);
    return;
  }
  const double c = std::cos(double(theta)), s = std::sin(double(theta));
  a.out[0][first] = x * c - y * s;
  a.out[0][second] = x * s + y * c;
  if (!a.budgets) return;
  const double gross = std::abs(x) + std::abs(y);
  // Beyond 2^20 sine and cosine are promised to lie in [-1, 1] and no more.
  const double budget =
      std::abs(theta) <= 0x1p20f ? gross * (kSinCos + 2 * kU) * 1.0001 + 3 * kTiny : 2 * gross;
  a.budget[0][first] = a.budget[0][second] = unless_overflow(gross, budget);
}

void eval_rope(Args& a) {
  const auto x = a.operand("x"), positions = a.operand("positions");
  const int64_t width = a.type("x").shape.back(), rows = int64_t(x.size()) / width;
  const int64_t rotary_dim = a.attribute("rotary_dim").i, half = rotary_dim / 2;
  const bool halves = a.attribute("pairing").s == "halves";
  const int64_t rows_per_position = rows / int64_t(positions.size());
  std::copy(x.begin(), x.end(), a.out[0].begin());
  for (int64_t r = 0; r < rows; ++r) {
    const float position = float(as_u32(positions[size_t(r / rows_per_position)]));
    for (int64_t k = 0; k < half; ++k) {
      const int64_t first = halves ? k : 2 * k, second = halves ? k + half : 2 * k + 1;
      rotate(a, size_t(r * width + first), size_t(r * width + second),
             position * frequency(a, k, rotary_dim));
    }
  }
}

}  // namespace accel::oracle
