// attention in its four forms (CONTRACT 15, E5, E13; specs 007 for the budget).
#include <algorithm>

#include "oracle/node.h"
#include "oracle/orders.h"

namespace accel::oracle {

namespace {

// What a position brings to its row: its score and weight, and the bounds of what f32 makes of
// them.
struct Term {
  double score, score_error;
  double weight, weight_error;  // exp(score - max); relative
};

struct Bounds {
  double max = -HUGE_VAL, min = HUGE_VAL, gross = 0;
  double sum = 0, weighted_error = 0, blocks = 0;
};

}  // namespace

// c * tanh(s / c): the slope of tanh falls away from 0, so an error of its argument counts by the
// steepest slope in reach.
static void cap_score(Term& t, double cap) {
  const double x = t.score / cap, moved = t.score_error / cap + kDivide * std::abs(x);
  const double near = std::max(0.0, std::abs(x) - moved), flat = std::tanh(near);
  t.score = cap * std::tanh(x);
  t.score_error = cap * moved * (1 - flat * flat) + (kTanh + kU) * std::abs(t.score) + kTiny;
}

static Term score_of(Args& a, const AttentionRow& r, size_t key, Bounds& b) {
  const auto q = a.operand("q"), k = a.operand("k");
  double dot = 0, magnitude = 0, keys = 0;
  for (int64_t d = 0; d < r.dim; ++d) {
    const double term = q[r.begin + size_t(d)] * k[key + size_t(d)];
    dot += term;
    magnitude += std::abs(term);
    keys += std::abs(k[key + size_t(d)]);
  }
  const double scale = std::abs(double(r.scale));
  Term t = {dot * double(r.scale), 0, 0, 0};
  t.score_error =
      scale * (gamma(depth_of("lane16", double(r.dim)) + 1) * magnitude + double(r.dim) * kTiny) +
      kU * std::abs(t.score);
  if (r.narrow) t.score_error += 1.001 * scale * (magnitude * 0x1p-11 + keys * 0x1p-25);
  b.gross = std::max(b.gross, magnitude * std::max(1.0, scale));
  if (r.cap > 0) cap_score(t, double(r.cap));
  return t;
}

static void weigh(Term& t, Bounds& b) {
  t.weight = std::exp(t.score - b.max);
  // Score error, the rounded differences to the running maxima, exp of it and of every block's
  // correction.
  t.weight_error =
      std::expm1(2 * t.score_error + kU * (b.max - b.min)) + (kExp + kU) * (1 + b.blocks);
  b.sum += t.weight;
  b.weighted_error += t.weight * t.weight_error;
}

// Whether rounding q to f16 overflows: then every result may be anything.
static bool overflows(Args& a, const AttentionRow& r) {
  const auto q = a.operand("q");
  return r.narrow && std::any_of(q.begin() + long(r.begin), q.begin() + long(r.begin) + r.dim,
                                 [](double x) { return std::abs(x) >= 65520; });
}

static void f64_row(Args& a, const AttentionRow& r) {
  const auto v = a.operand("v");
  std::vector<Term> terms;
  Bounds b;
  for (const auto& s : r.seen) terms.push_back(score_of(a, r, s.at, b));
  if (r.sink) terms.push_back({double(*r.sink), 0, 0, 0});
  for (const Term& t : terms) {
    b.max = std::max(b.max, t.score);
    b.min = std::min(b.min, t.score);
  }
  for (size_t i = 0; i < r.seen.size(); ++i)
    b.blocks += i == 0 || r.seen[i].position / 128 != r.seen[i - 1].position / 128;
  if (r.sink) b.blocks += 1;
  for (Term& t : terms) weigh(t, b);
  // Weights are summed in lane16 a block; values go down one chain, scaled once a block. Where each
  // block has a chain of its own, a value passes 128 additions at most and two a block, no more.
  const double n = double(r.seen.size());
  const double summed = gamma(depth_of("lane16", std::min(n, 128.0)) + 2 * b.blocks);
  const double common = b.weighted_error / b.sum + summed + kDivide;
  const double chained = gamma(n + b.blocks + 1) + (r.narrow ? 1.001 * 0x1p-11 : 0);
  const bool any = overflows(a, r);
  for (int64_t d = 0; d < r.dim; ++d) {
    double out = 0, magnitude = 0, moved = 0, values = 0;
    for (size_t j = 0; j < r.seen.size(); ++j) {
      const double value = v[r.seen[j].at + size_t(d)], term = terms[j].weight / b.sum * value;
      out += term;
      magnitude += std::abs(term);
      moved += std::abs(term) * terms[j].weight_error;
      values += std::abs(value);
    }
    a.out[0][r.begin + size_t(d)] = out;
    if (!a.budgets) continue;
    double budget =
        (moved + magnitude * (chained + common)) * 1.001 + (n + 2 * b.blocks + 4) * kTiny;
    if (r.narrow) budget += values / b.sum * 0x1p-25 * 1.001;
    a.budget[0][r.begin + size_t(d)] =
        any ? HUGE_VAL : unless_overflow(std::max(b.gross, magnitude) * 1.001, budget);
  }
}

// ---------------------------------------------------------------- what a row sees

namespace {

struct Place {
  int64_t sequence, position;  // sequence -1: the row belongs to none
};

struct Cache {
  int64_t capacity, block, max_pages, window;
  bool paged;
  int64_t reach() const { return paged ? max_pages * block : capacity; }
};

}  // namespace

static int64_t length_of(const Args& a, const Cache& c, int64_t sequence) {
  return std::min(int64_t(as_u32(a.operand("lengths")[size_t(sequence)])), c.reach());
}

// Sequence and position of each row, by form.
static std::vector<Place> places(const Args& a, const Cache& c) {
  const Shape& q = a.type("q").shape;
  if (q.rank() == 2) return {{0, length_of(a, c, 0) - 1}};
  std::vector<Place> rows;
  if (q.rank() == 4) {
    for (int64_t b = 0; b < q[0]; ++b) rows.push_back({b, length_of(a, c, b) - 1});
    return rows;
  }
  if (!a.has("query_extents")) {
    const int64_t base = a.scalar_u32("base_name");
    for (int64_t s = 0; s < q[0]; ++s) rows.push_back({0, base + s});
    return rows;
  }
  const auto extents = a.operand("query_extents");
  for (size_t b = 0; b < extents.size(); ++b) {
    const int64_t n = as_u32(extents[b]), length = length_of(a, c, int64_t(b));
    for (int64_t i = 0; i < n && int64_t(rows.size()) < q[0]; ++i)
      rows.push_back({int64_t(b), length - n + i});
  }
  rows.resize(size_t(q[0]), {-1, -1});
  return rows;
}

// The positions that a row sees and the rows of the cache that hold them.
static std::vector<AttentionRow::Seen> seen_by(const Args& a, const Cache& c, const Place& row,
                                               int64_t kv_head) {
  const Shape& k = a.type("k").shape;
  std::vector<AttentionRow::Seen> seen;
  if (row.sequence < 0) return seen;
  const int64_t length = length_of(a, c, row.sequence);
  for (int64_t j = 0; j < length && j <= row.position; ++j) {
    if (c.window && j <= row.position - c.window) continue;
    int64_t physical = j;
    if (c.paged) {
      const size_t entry = size_t(row.sequence * c.max_pages + j / c.block);
      physical = int64_t(as_u32(a.operand("pages")[entry])) * c.block + j % c.block;
    }
    if (physical < c.capacity) seen.push_back({j, size_t((physical * k[1] + kv_head) * k[2])});
  }
  return seen;
}

void eval_attention(Args& a) {
  const Shape& k = a.type("k").shape;
  const int64_t heads = a.type("q").shape[a.type("q").shape.rank() - 2];
  const bool paged = a.has("pages");
  const Cache cache = {k[0], std::min<int64_t>(a.attribute("block").i, 0xffffffff),
                       paged ? a.type("pages").shape.back() : 0,
                       a.attribute("window").set ? a.attribute("window").i : 0, paged};
  const auto rows = places(a, cache);
  for (size_t s = 0; s < rows.size(); ++s)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t kv_head = h / (heads / k[1]);
      AttentionRow row = {(s * size_t(heads) + size_t(h)) * size_t(k[2]),
                          k[2],
                          a.scalar_f32("scale_name"),
                          a.attribute("soft_cap").set ? a.attribute("soft_cap").f : 0.0f,
                          a.attribute("operands").set,
                          std::nullopt,
                          seen_by(a, cache, rows[s], kv_head)};
      if (a.has("sinks")) row.sink = float(a.operand("sinks")[size_t(h)]);
      if (row.seen.empty()) continue;  // a row that sees nothing stays zero
      if (a.level == Level::f64) f64_row(a, row);
      else attention_f32(a, row);
    }
}

}  // namespace accel::oracle
