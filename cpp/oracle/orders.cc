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

// One of the ways in which hardware may add: a chain a chunk, the chunks one after another.
static float matrix16(Level level, const std::vector<float>& x, const std::vector<float>& w) {
  constexpr size_t kChunk = 128;
  float total = 0;
  for (size_t begin = 0; begin < x.size(); begin += kChunk) {
    float sum = 0;
    for (size_t k = begin; k < std::min(begin + kChunk, x.size()); ++k)
      sum = mul_add(x[k], w[k], sum, level);
    total = begin == 0 ? sum : total + sum;
  }
  return std::isfinite(total) ? total : dot("chain", level, x, w);
}

float dot(std::string_view order, Level level, const std::vector<float>& x,
          const std::vector<float>& w) {
  // One of the ways in which hardware may add inside a step of eight; all lie within the bound.
  if (order == "matrix16") return matrix16(level, x, w);
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

// The pieces that both orders are made of. A position that is not seen is in no sum; +0 in its
// place leaves a lane as it is.
namespace {

struct AttentionWalk {
  Args& a;
  const AttentionRow& r;
  std::vector<float> query;
  float max = -3.4e38f, total = 0;
  std::vector<float> out = std::vector<float>(size_t(r.dim), 0.0f);

  AttentionWalk(Args& args, const AttentionRow& row);
  std::vector<float> head(std::span<const double> s, size_t first) const {
    return std::vector<float>(s.begin() + long(first), s.begin() + long(first) + r.dim);
  }
  float score(size_t key) const;
  void raise(std::vector<float>& weight, size_t from, size_t to, float top) const;
  void add_values(const std::vector<float>& weight, size_t from, size_t to,
                  std::vector<float>& o) const;
  void in_one_chain(std::vector<float>& weight, size_t from, size_t to, float top);
  void by_itself(std::vector<float>& weight, size_t from, size_t to, float top);
  void sink(float logit);
};

}  // namespace

AttentionWalk::AttentionWalk(Args& args, const AttentionRow& row)
    : a(args), r(row), query(head(a.operand("q"), r.begin)) {
  if (!r.narrow) return;
  for (float& x : query) x = float(stored(DType::F16, x));
}

float AttentionWalk::score(size_t key) const {
  const float s = dot("lane16", a.level, query, head(a.operand("k"), key)) * r.scale;
  return r.cap > 0 ? r.cap * tanh_f32(s / r.cap, a.level) : s;
}

static size_t lane_of(const AttentionRow::Seen& seen) {
  return size_t(seen.position % 128);
}

// Scores of the positions from .. to - 1 to exponentials.
void AttentionWalk::raise(std::vector<float>& weight, size_t from, size_t to, float top) const {
  for (size_t j = from; j < to; ++j) {
    float& w = weight[lane_of(r.seen[j])];
    w = exp_f32(w - top, a.level);
  }
}

void AttentionWalk::add_values(const std::vector<float>& weight, size_t from, size_t to,
                               std::vector<float>& o) const {
  for (size_t j = from; j < to; ++j) {
    const auto value = head(a.operand("v"), r.seen[j].at);
    const float e = weight[lane_of(r.seen[j])], w = r.narrow ? float(stored(DType::F16, e)) : e;
    for (size_t d = 0; d < o.size(); ++d) o[d] = mul_add(w, value[d], o[d], a.level);
  }
}

// attention_block128: the block's values go on with the chain of those before, scaled.
void AttentionWalk::in_one_chain(std::vector<float>& weight, size_t from, size_t to, float top) {
  const float next = std::max(max, top), correction = exp_f32(max - next, a.level);
  raise(weight, from, to, next);
  total = correction * total + sum("lane16", weight);
  for (float& o : out) o = correction * o;
  add_values(weight, from, to, out);
  max = next;
}

// attention_split128: a block by itself, then merged with those before.
void AttentionWalk::by_itself(std::vector<float>& weight, size_t from, size_t to, float top) {
  std::vector<float> own(out.size(), 0.0f);
  raise(weight, from, to, top);
  add_values(weight, from, to, own);
  const float next = std::max(max, top);
  const float before = exp_f32(max - next, a.level), share = exp_f32(top - next, a.level);
  const float scaled = before * total;
  total = mul_add(share, sum("lane16", weight), scaled, a.level);
  for (size_t d = 0; d < out.size(); ++d) {
    const float kept = before * out[d];
    out[d] = mul_add(share, own[d], kept, a.level);
  }
  max = next;
}

void AttentionWalk::sink(float logit) {
  const float next = std::max(max, logit), correction = exp_f32(max - next, a.level);
  const float scaled = correction * total;
  total = scaled + exp_f32(logit - next, a.level);
  for (float& o : out) o = correction * o;
}

void attention_f32(Args& a, const AttentionRow& r) {
  const std::string_view order = a.order();
  ACCEL_CHECK(order == "attention_block128" || order == "attention_split128");
  AttentionWalk walk(a, r);
  for (size_t i = 0; i < r.seen.size();) {
    const int64_t block = r.seen[i].position / 128;
    const size_t from = i;
    std::vector<float> weight(128, 0.0f);
    float top = -3.4e38f;
    for (; i < r.seen.size() && r.seen[i].position / 128 == block; ++i) {
      const float s = walk.score(r.seen[i].at);
      weight[lane_of(r.seen[i])] = s;
      top = std::max(top, s);
    }
    if (order == "attention_split128") walk.by_itself(weight, from, i, top);
    else walk.in_one_chain(weight, from, i, top);
  }
  if (r.sink) walk.sink(*r.sink);
  for (size_t d = 0; d < walk.out.size(); ++d)
    a.out[0][r.begin + d] = double(walk.out[d] / walk.total);
}

}  // namespace accel::oracle
