#include "oracle/orders.h"

#include <algorithm>
#include <cmath>

namespace accel::oracle {

float mul_add(float a, float b, float c, Level level) {
  if (level == Level::fma) return std::fmaf(a, b, c);
  const float product = a * b;
  return product + c;
}

// ---------------------------------------------------------------- sums

static float fold(std::vector<float> lanes) {
  for (size_t half = lanes.size() / 2; half > 0; half /= 2)
    for (size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

float lane_sum(const std::vector<float>& values, size_t lanes) {
  std::vector<float> lane(lanes, 0.0f);
  for (size_t i = 0; i < values.size(); ++i) lane[i % lanes] += values[i];
  return fold(lane);
}

static size_t lanes_of(std::string_view order) {
  if (order == "lane16") return 16;
  if (order == "lane128") return 128;
  if (order == "lane256") return 256;
  if (order == "chain") return 1;
  ACCEL_CHECK(!"the order has a slow walk");
  return 0;
}

float sum(std::string_view order, const std::vector<float>& values) {
  return lane_sum(values, lanes_of(order));
}

float dot(std::string_view order, Level level, const std::vector<float>& x,
          const std::vector<float>& w) {
  // One of the ways in which hardware may add inside a step of eight; all lie within the bound.
  if (order == "matrix8") return dot("chain", Level::base, x, w);
  std::vector<float> lane(lanes_of(order), 0.0f);
  for (size_t k = 0; k < x.size(); ++k) {
    float& a = lane[k % lane.size()];
    a = mul_add(x[k], w[k], a, level);
  }
  return fold(lane);
}

uint32_t categorical(const std::vector<float>& weights, float draw) {
  if (std::isnan(draw)) draw = 0;
  draw = std::clamp(draw, 0.0f, 0.99999994f);
  std::vector<float> running(weights.size());
  float carry = 0;
  for (size_t begin = 0; begin < weights.size(); begin += 256) {
    float s = 0;
    for (size_t i = begin; i < std::min(weights.size(), begin + 256); ++i) {
      s += weights[i];
      running[i] = carry + s;
    }
    carry += s;
  }
  const float target = draw * carry;
  for (size_t i = 0; i < running.size(); ++i)
    if (running[i] > target) return uint32_t(i);
  return uint32_t(weights.size() - 1);
}

// ---------------------------------------------------------------- rows

static double stored(DType t, float v) {
  return double(t == DType::F16 ? f32_from_f16(f16_from_f32(v)) : v);
}

void rms_norm_f32(Args& a, const double* x, const double* gain, size_t begin, int64_t width,
                  float eps) {
  std::vector<float> row(x, x + width);
  const float squares = dot(a.order(), a.level, row, row);
  const float root = 1.0f / std::sqrt(squares / float(width) + eps);
  for (size_t i = 0; i < row.size(); ++i)
    a.out[0][begin + i] = stored(a.call.results[0].dtype, row[i] * root * float(gain[i]));
}

void l2_norm_f32(Args& a, const double* x, size_t begin, int64_t width, float eps) {
  std::vector<float> row(x, x + width);
  const float root = 1.0f / std::sqrt(dot(a.order(), a.level, row, row) + eps);
  for (size_t i = 0; i < row.size(); ++i) a.out[0][begin + i] = double(row[i] * root);
}

// NaN where a row holds one.
static float maximum(const std::vector<float>& row) {
  float max = -HUGE_VALF;
  bool nan = false;
  for (float v : row) {
    nan = nan || std::isnan(v);
    max = std::max(max, v);
  }
  return nan ? NAN : max;
}

void softmax_f32(Args& a, const double* x, size_t begin, int64_t width) {
  std::vector<float> e(x, x + width);
  const float max = maximum(e);
  for (float& v : e) v = exp_f32(v - max, a.level);
  const float total = sum(a.order(), e);
  for (size_t i = 0; i < e.size(); ++i) a.out[0][begin + i] = double(e[i] / total);
}

void log_softmax_f32(Args& a, const double* x, size_t begin, int64_t width) {
  const std::vector<float> row(x, x + width);
  const float max = maximum(row);
  std::vector<float> e(row.size());
  for (size_t i = 0; i < e.size(); ++i) e[i] = exp_f32(row[i] - max, a.level);
  const float log = log_f32(sum(a.order(), e), a.level);
  for (size_t i = 0; i < e.size(); ++i) {
    const float difference = row[i] - max;
    a.out[0][begin + i] = double(difference - log);
  }
}

// ---------------------------------------------------------------- attention

// attention_block128 (spec 010): scores and weight sums in lane16, the values in one chain that
// each block's correction scales before it goes on. A position that is not seen is in no sum; +0 in
// its place leaves a lane as it is.
void attention_f32(Args& a, const AttentionRow& r) {
  const auto q = a.operand("q"), k = a.operand("k"), v = a.operand("v");
  const auto head = [&](std::span<const double> s, size_t first) {
    return std::vector<float>(s.begin() + long(first), s.begin() + long(first) + r.dim);
  };
  std::vector<float> query = head(q, r.begin), out(size_t(r.dim), 0.0f);
  if (r.narrow)
    for (float& x : query) x = float(stored(DType::F16, x));
  float max = -3.4e38f, total = 0;
  for (size_t i = 0; i < r.seen.size();) {
    const int64_t block = r.seen[i].position / 128;
    const size_t from = i;
    while (i < r.seen.size() && r.seen[i].position / 128 == block) ++i;
    std::vector<float> weight(128, 0.0f);
    const auto at = [&](size_t j) -> float& { return weight[size_t(r.seen[j].position % 128)]; };
    float next = max;
    for (size_t j = from; j < i; ++j) {
      float s = dot("lane16", a.level, query, head(k, r.seen[j].at)) * r.scale;
      if (r.cap > 0) s = r.cap * tanh_f32(s / r.cap, a.level);
      at(j) = s;
      next = std::max(next, s);
    }
    for (size_t j = from; j < i; ++j) at(j) = exp_f32(at(j) - next, a.level);
    const float correction = exp_f32(max - next, a.level);
    total = correction * total + sum("lane16", weight);
    for (float& o : out) o = correction * o;
    for (size_t j = from; j < i; ++j) {
      const auto value = head(v, r.seen[j].at);
      const float w = r.narrow ? float(stored(DType::F16, at(j))) : at(j);
      for (size_t d = 0; d < out.size(); ++d) out[d] = mul_add(w, value[d], out[d], a.level);
    }
    max = next;
  }
  if (r.sink) {
    const float next = std::max(max, *r.sink), correction = exp_f32(max - next, a.level);
    total = correction * total + exp_f32(*r.sink - next, a.level);
    for (float& o : out) o = correction * o;
  }
  for (size_t d = 0; d < out.size(); ++d) a.out[0][r.begin + d] = double(out[d] / total);
}

}  // namespace accel::oracle
