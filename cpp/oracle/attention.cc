// attention over contiguous caches: decode and prefill (CONTRACT 15, specs 007 for the budget).
#include <algorithm>

#include "oracle/node.h"
#include "oracle/orders.h"

namespace accel::oracle {

namespace {
struct Row {
  int64_t kv_head, seen;  // positions [0, seen) are visible
  size_t begin;           // of q and of the result
};
}  // namespace

static void f64_row(Args& a, const Row& row, int64_t kv_heads, int64_t dim, double scale) {
  const auto q = a.operand("q"), k = a.operand("k"), v = a.operand("v");
  const auto at = [&](int64_t j, int64_t d) {
    return size_t((j * kv_heads + row.kv_head) * dim + d);
  };
  std::vector<double> score(static_cast<size_t>(row.seen)), error(static_cast<size_t>(row.seen));
  double max = -HUGE_VAL, min = HUGE_VAL, gross = 0;
  const double dot_error = gamma(depth_of("lane16", double(dim)) + 1);
  for (int64_t j = 0; j < row.seen; ++j) {
    double dot = 0, magnitude = 0;
    for (int64_t d = 0; d < dim; ++d) {
      const double term = q[row.begin + size_t(d)] * k[at(j, d)];
      dot += term;
      magnitude += std::abs(term);
    }
    score[size_t(j)] = dot * scale;
    error[size_t(j)] = std::abs(scale) * (dot_error * magnitude + double(dim) * kTiny) +
                       kU * std::abs(score[size_t(j)]);
    max = std::max(max, score[size_t(j)]);
    min = std::min(min, score[size_t(j)]);
    gross = std::max(gross, magnitude * std::max(1.0, std::abs(scale)));
  }
  double sum = 0, weighted_error = 0;
  const double blocks = std::ceil(double(row.seen) / 128);
  std::vector<double> weight(static_cast<size_t>(row.seen));
  for (int64_t j = 0; j < row.seen; ++j) {
    weight[size_t(j)] = std::exp(score[size_t(j)] - max);
    // Score error, the rounded differences to the running maxima, exp of it and of every block's
    // correction.
    error[size_t(j)] =
        std::expm1(2 * error[size_t(j)] + kU * (max - min)) + (kExp + kU) * (1 + blocks);
    sum += weight[size_t(j)];
    weighted_error += weight[size_t(j)] * error[size_t(j)];
  }
  // Weights are summed in lane16 a block; values go down one chain, scaled once a block.
  const double summed =
      gamma(depth_of("lane16", std::min<double>(double(row.seen), 128)) + 2 * blocks);
  const double common = weighted_error / sum + summed + kDivide;
  const double chained = gamma(double(row.seen) + blocks + 1);
  for (int64_t d = 0; d < dim; ++d) {
    double out = 0, magnitude = 0, moved = 0;
    for (int64_t j = 0; j < row.seen; ++j) {
      const double term = weight[size_t(j)] / sum * v[at(j, d)];
      out += term;
      magnitude += std::abs(term);
      moved += std::abs(term) * error[size_t(j)];
    }
    a.out[0][row.begin + size_t(d)] = out;
    if (!a.budgets) continue;
    const double budget =
        (moved + magnitude * (chained + common)) * 1.001 + double(row.seen + 4) * kTiny;
    a.budget[0][row.begin + size_t(d)] =
        unless_overflow(std::max(gross, magnitude) * 1.001, budget);
  }
}

void eval_attention(Args& a) {
  const Shape& qs = a.type("q").shape;
  const Shape& ks = a.type("k").shape;
  const bool prefill = qs.rank() == 3;
  const int64_t rows = prefill ? qs[0] : 1, heads = qs[qs.rank() - 2], dim = qs.back();
  const int64_t capacity = ks[0], kv_heads = ks[1];
  const int64_t length = std::min(int64_t(as_u32(a.operand("lengths")[0])), capacity);
  const float scale = a.scalar_f32("scale_name");
  for (int64_t s = 0; s < rows; ++s) {
    const int64_t position = prefill ? int64_t(a.scalar_u32("base_name")) + s : length - 1;
    const int64_t seen = std::min(length, position + 1);
    for (int64_t h = 0; h < heads; ++h) {
      const Row row{h / (heads / kv_heads), seen, size_t((s * heads + h) * dim)};
      if (seen <= 0) continue;  // a row that sees nothing stays zero
      if (a.level == Level::f64) f64_row(a, row, kv_heads, dim, double(scale));
      else attention_f32(a, row.begin, row.kv_head, row.seen, scale);
    }
  }
}

}  // namespace accel::oracle
