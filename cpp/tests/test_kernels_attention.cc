// attention's kernels against a slow walk of the order attention_block128, bit for bit, and against
// float64 softmax; what a row does not see never reaches it.
#include <limits>

#include "base/dtype.h"
#include "kernels_util.h"
#include "shared/params/attention.h"
#include "shared/params/elementwise.h"

using namespace kernels_util;
using accel::f16_from_f32;
using accel::f32_from_f16;

namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

struct Position {
  uint64_t j, row;  // and the row of the cache that holds it
};

struct Problem {
  AttentionParams p;
  std::vector<uint32_t> lengths;
  uint32_t base;
  float scale;
  std::vector<float> q, k, v;  // caches as f32 values that f16 represents
  std::vector<uint32_t> pages, extents;
  std::vector<float> sinks;
  bool narrow = false;

  uint64_t window() const { return uint64_t(p.window[1]) << 32 | p.window[0]; }

  // Sequence of a row, its position, and the sequence's length; false: it has no position.
  bool place(unsigned row, size_t& b, int64_t& position, uint64_t& length) const {
    const uint64_t reach = p.block ? uint64_t(p.block) * p.max_pages : p.capacity;
    b = p.form == kAttentionBatched ? row : 0;
    uint64_t token = row;
    if (p.form == kAttentionRagged) {
      while (b < extents.size() && token >= extents[b]) token -= extents[b++];
      if (b == extents.size()) return false;
    }
    length = std::min<uint64_t>(lengths[b], reach);
    position = p.form == kAttentionPrefill  ? int64_t(base) + row
               : p.form == kAttentionRagged ? int64_t(length) - extents[b] + int64_t(token)
                                            : int64_t(length) - 1;
    return true;
  }
  std::vector<Position> seen(unsigned row) const {
    size_t b = 0;
    int64_t position = 0;
    uint64_t length = 0;
    std::vector<Position> all;
    if (!place(row, b, position, length)) return all;
    for (int64_t j = 0; j < int64_t(length) && j <= position; ++j) {
      if (window() && j + int64_t(window()) <= position) continue;
      uint64_t at = uint64_t(j);
      if (p.block)
        at = uint64_t(pages[b * p.max_pages + size_t(j) / p.block]) * p.block +
             uint64_t(j) % p.block;
      if (at < p.capacity) all.push_back({uint64_t(j), at});
    }
    return all;
  }
};

void fill(Problem& t, uint64_t seed) {
  Random random(seed);
  t.q.resize(size_t(t.p.rows) * t.p.heads * t.p.head_dim);
  t.k.resize(size_t(t.p.capacity) * t.p.kv_heads * t.p.head_dim);
  t.v.resize(t.k.size());
  for (float& x : t.q) x = random.between(-2, 2);
  for (float& x : t.k) x = f32_from_f16(f16_from_f32(random.between(-2, 2)));
  for (float& x : t.v) x = f32_from_f16(f16_from_f32(random.between(-2, 2)));
}

Problem make(unsigned S, unsigned heads, unsigned kv_heads, unsigned head_dim, unsigned capacity,
             uint32_t length, uint32_t base, bool prefill, uint64_t seed = 1) {
  Problem t = {};
  t.p = {unsigned(prefill ? kAttentionPrefill : kAttentionDecode),
         S,
         heads,
         kv_heads,
         head_dim,
         capacity,
         1,
         0,
         0,
         {0, 0},
         0.0f,
         0,
         0};
  t.lengths = {length};
  t.base = base;
  t.scale = 0.3f;
  fill(t, seed);
  return t;
}

// Pages in no order, without a place beyond each length; batched where there are no extents.
Problem make_paged(std::vector<uint32_t> lengths, std::vector<uint32_t> extents, unsigned rows,
                   unsigned heads, unsigned kv_heads, unsigned head_dim, unsigned block,
                   unsigned capacity, uint64_t seed = 1) {
  Problem t = {};
  const unsigned count = (capacity + block - 1) / block, n = unsigned(lengths.size());
  const unsigned longest = *std::max_element(lengths.begin(), lengths.end());
  const unsigned max_pages = (longest + block - 1) / block + 1;
  t.p = {unsigned(extents.empty() ? kAttentionBatched : kAttentionRagged),
         rows,
         heads,
         kv_heads,
         head_dim,
         capacity,
         n,
         block,
         max_pages,
         {0, 0},
         0.0f,
         0,
         0};
  std::vector<uint32_t> free(count);
  for (unsigned i = 0; i < count; ++i) free[i] = i;
  Random random(seed + 77);
  for (unsigned i = count; i > 1; --i) std::swap(free[i - 1], free[random.next() % i]);
  t.pages.assign(size_t(n) * max_pages, 0xffffffffu);
  size_t taken = 0;
  for (unsigned b = 0; b < n; ++b)
    for (unsigned i = 0; i * block < lengths[b]; ++i) {
      CHECK(taken < free.size());
      t.pages[size_t(b) * max_pages + i] = free[taken++];
    }
  t.lengths = std::move(lengths);
  t.extents = std::move(extents);
  t.scale = 0.3f;
  fill(t, seed);
  return t;
}

Bytes cache(const std::vector<float>& x, bool half) {
  if (!half) return bytes_of(x);
  std::vector<uint16_t> h(x.size());
  for (size_t i = 0; i < x.size(); ++i) h[i] = f16_from_f32(x[i]);
  return bytes_of(h);
}

KernelCase kernel_case(const Problem& t, bool half) {
  std::vector<uint32_t> offsets(t.extents.empty() ? 0 : 1, 0);
  for (const uint32_t n : t.extents)
    offsets.push_back(uint32_t(std::min<uint64_t>(uint64_t(offsets.back()) + n, t.p.rows)));
  return {t.narrow ? "attention_f16_narrow"
          : half   ? "attention_f16"
                   : "attention_f32",
          {bytes_of(t.q), cache(t.k, half), cache(t.v, half), bytes_of(t.lengths),
           bytes_of(t.pages), bytes_of(t.extents), bytes_of(t.sinks), bytes_of(offsets)},
          Bytes(t.q.size() * 4, 0x5a),
          &t.p,
          {bits_of(t.scale), t.base}};
}

// One of the table's own functions.
std::vector<float> apply(const KernelTable& table, const char* name, std::vector<float> x) {
  const ElementwiseParams p = {unsigned(x.size()), unsigned(x.size()), 1, 0};
  std::vector<float> y(x.size());
  run(find(table, name), {x.data(), y.data()}, &p, {}, 1);
  return y;
}

float half_of(float x) {
  return f32_from_f16(f16_from_f32(x));
}

struct State {
  float m = -3.4e38f, l = 0;
  std::vector<float> o;
};

// One block of the order, over the positions of `seen` that lie in it.
void walk_block(const KernelTable& table, const Problem& t, const std::vector<float>& q,
                unsigned kv, const std::vector<Position>& seen, State& s) {
  const Level level = {std::string(table.level) == "fma"};
  const unsigned D = t.p.head_dim;
  std::vector<float> scores(seen.size());
  float most = -3.4e38f;
  for (size_t i = 0; i < seen.size(); ++i) {
    const float* k = &t.k[(seen[i].row * t.p.kv_heads + kv) * D];
    float lane[16] = {};
    for (unsigned c = 0; c < D; ++c) lane[c % 16] = level.fma(q[c], k[c], lane[c % 16]);
    scores[i] = tree16(lane) * t.scale;
    if (t.p.soft_cap > 0)
      scores[i] = t.p.soft_cap * apply(table, "tanh_f32", {scores[i] / t.p.soft_cap})[0];
    most = scores[i] > most ? scores[i] : most;
  }
  const float next = most > s.m ? most : s.m, alpha = apply(table, "exp_f32", {s.m - next})[0];
  for (float& x : scores) x = x - next;
  auto e = apply(table, "exp_f32", scores);
  float lane[16] = {};
  for (size_t i = 0; i < seen.size(); ++i) lane[seen[i].j % 16] = lane[seen[i].j % 16] + e[i];
  s.l = alpha * s.l + tree16(lane);
  for (unsigned c = 0; c < D; ++c) {
    s.o[c] = alpha * s.o[c];
    for (size_t i = 0; i < seen.size(); ++i)
      s.o[c] = level.fma(t.narrow ? half_of(e[i]) : e[i],
                         t.v[(seen[i].row * t.p.kv_heads + kv) * D + c], s.o[c]);
  }
  s.m = next;
}

// The order, written out for one row and head.
void walk(const KernelTable& table, const Problem& t, unsigned row, unsigned head, float* out) {
  const unsigned D = t.p.head_dim, kv = head / (t.p.heads / t.p.kv_heads);
  const auto from = t.q.begin() + long((size_t(row) * t.p.heads + head) * D);
  std::vector<float> q(from, from + D);
  if (t.narrow)
    for (float& x : q) x = half_of(x);
  const std::vector<Position> seen = t.seen(row);
  State s;
  s.o.assign(D, 0.0f);
  for (size_t i = 0; i < seen.size();) {
    std::vector<Position> block;
    for (const uint64_t b = seen[i].j / 128; i < seen.size() && seen[i].j / 128 == b; ++i)
      block.push_back(seen[i]);
    walk_block(table, t, q, kv, block, s);
  }
  if (!t.sinks.empty()) {
    const float next = t.sinks[head] > s.m ? t.sinks[head] : s.m;
    const float alpha = apply(table, "exp_f32", {s.m - next})[0];
    s.l = alpha * s.l + apply(table, "exp_f32", {t.sinks[head] - next})[0];
    for (float& x : s.o) x = alpha * x;
  }
  for (unsigned c = 0; c < D; ++c) out[c] = seen.empty() ? 0.0f : s.o[c] / s.l;
}

void check_problem(const Problem& t) {
  const auto all = tables();
  for (bool half : {false, true}) {
    if (t.narrow && !half) continue;
    const auto results = check_case(kernel_case(t, half));
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<float> expected(t.q.size());
      for (unsigned s = 0; s < t.p.rows; ++s)
        for (unsigned h = 0; h < t.p.heads; ++h)
          walk(*all[i], t, s, h, &expected[(size_t(s) * t.p.heads + h) * t.p.head_dim]);
      if (!same(results[i], bytes_of(expected), Kind::f32))
        check::fail(__FILE__, __LINE__,
                    std::string(all[i]->isa) + (half ? " f16" : " f32") +
                        ": other bits than the walk, form " + std::to_string(t.p.form) + " rows " +
                        std::to_string(t.p.rows) + " length " + std::to_string(t.lengths[0]) +
                        " block " + std::to_string(t.p.block) + " head_dim " +
                        std::to_string(t.p.head_dim));
    }
  }
}

TEST(test_decode_has_the_bits_of_its_order) {
  for (unsigned head_dim : {8u, 16u, 24u, 64u, 96u, 128u, 256u})
    check_problem(make(1, 6, 2, head_dim, 300, 300, 0, false));
  for (uint32_t length : {0u, 1u, 15u, 16u, 17u, 127u, 128u, 129u, 256u, 299u, 301u, 0xffffffffu})
    check_problem(make(1, 9, 3, 64, 300, length, 0, false));
  check_problem(make(1, 4, 4, 32, 140, 140, 0, false));
  check_problem(make(1, 8, 1, 40, 140, 140, 0, false));
}

TEST(test_prefill_has_the_bits_of_its_order) {
  check_problem(make(7, 6, 2, 64, 300, 7, 0, true));
  check_problem(
      make(40, 9, 3, 64, 300, 300, 250, true));  // starts in one block and ends in the next
  check_problem(make(130, 2, 2, 16, 200, 130, 0, true));  // longer than a block, many members
  check_problem(make(5, 4, 2, 24, 64, 9, 3, true));       // positions past the length
  check_problem(make(5, 4, 2, 8, 64, 0, 3, true));
  check_problem(make(3, 2, 1, 72, 64, 64, 0xfffffffeu, true));  // base + s may not wrap
}

// Exponentials down to nothing and below, and their alpha. With one value that is not zero, a
// vanishing weight is all that is left of a row.
TEST(test_steep_scores_have_the_bits_of_their_order) {
  for (float scale : {4.0f, 12.0f, 100.0f}) {
    Problem t = make(60, 6, 2, 32, 300, 300, 240, true);
    t.scale = scale;
    check_problem(t);
    for (size_t i = 0; i < t.v.size(); ++i)
      if (i / (2 * 32) != 37) t.v[i] = 0;
    check_problem(t);
    t = make(1, 6, 2, 32, 300, 290, 0, false);
    t.scale = scale;
    check_problem(t);
  }
}

TEST(test_batched_and_ragged_rows_have_the_bits_of_their_order) {
  for (unsigned block : {1u, 16u, 128u, 200u}) {
    check_problem(make_paged({33, 1, 150, 0}, {}, 4, 6, 2, 24, block, 1000));
    check_problem(make_paged({33, 140, 260}, {5, 0, 30}, 40, 4, 2, 16, block, 1000));
  }
  check_problem(make_paged({3, 40, 9}, {5, 2, 0xffffffffu}, 12, 3, 1, 8, 16, 100));  // clamped sum
  check_problem(make_paged({300}, {120}, 120, 4, 4, 32, 16, 400));
  check_problem(make_paged(std::vector<uint32_t>(40, 17), {}, 40, 8, 1, 8, 8, 1000));
}

TEST(test_bad_pages_hold_nothing) {
  Problem t = make_paged({300, 290, 16}, {40, 1, 1}, 43, 4, 2, 16, 16, 1000);
  Random random(5);
  for (size_t i = 0; i < 2 * t.p.max_pages; ++i)
    if (random.next() % 3 == 0)
      t.pages[i] = random.next() % 2 ? 63 + random.next() % 3 : random.next();
  for (size_t i = 0; i < 9; ++i) t.pages[t.p.max_pages + i] = 0xffffffffu;  // a block and more
  t.pages[2 * t.p.max_pages] = 1u << 28;  // times 16 wraps in 32 bits
  check_problem(t);
  CHECK(t.seen(42).empty());
}

TEST(test_options_have_the_bits_of_their_order) {
  for (const uint64_t window : {1ull, 15ull, 16ull, 100ull, 128ull, 129ull, 1ull << 40}) {
    Problem t = make_paged({300, 140, 60}, {50, 1, 60}, 111, 4, 2, 16, 16, 1000);
    t.p.window[0] = unsigned(window);
    t.p.window[1] = unsigned(window >> 32);
    check_problem(t);
    t.p.soft_cap = 0.7f;
    t.sinks = {-3, 0.5f, 4, 300};
    t.narrow = window > 100;
    check_problem(t);
    Problem past = make(9, 4, 2, 8, 200, 150, 145, true);  // rows whose window lies past the length
    past.p.window[0] = unsigned(window);
    past.p.window[1] = unsigned(window >> 32);
    check_problem(past);
  }
}

TEST(p26_18_prefill_of_any_cut_equals_decode) {
  const unsigned total = 150, heads = 6, D = 32;
  const Problem whole = make(total, heads, 2, D, 160, total, 0, true);
  for (const KernelTable* table : tables()) {
    const Bytes at_once = run_case(*table, kernel_case(whole, true), 1, 1, 0);
    const size_t row = size_t(heads) * D * 4;
    for (unsigned from = 0; from < total;) {
      const unsigned n = std::min(total - from, from % 3 == 0 ? 1u : 37u);
      Problem part = whole;
      part.p.rows = n;
      part.base = from;
      part.lengths = {from + n};
      part.q.assign(whole.q.begin() + from * heads * D, whole.q.begin() + (from + n) * heads * D);
      const Bytes expected(at_once.begin() + from * row, at_once.begin() + (from + n) * row);
      CHECK(same(run_case(*table, kernel_case(part, true), 0, 4, 4), expected, Kind::f32));
      if (n == 1) {
        part.p.form = kAttentionDecode;
        CHECK(same(run_case(*table, kernel_case(part, true), 0, 4, 4), expected, Kind::f32));
      }
      from += n;
    }
  }
}

TEST(p26_18_unseen_positions_never_reach_a_row) {
  const unsigned S = 20, D = 40, kv_heads = 2;
  const Problem clean = make(S, 6, kv_heads, D, 200, 140, 120, true);
  for (bool half : {false, true})
    for (unsigned s : {0u, 7u, 19u}) {
      Problem dirty = clean;
      for (size_t i = clean.seen(s).size() * kv_heads * D; i < dirty.k.size(); ++i)
        dirty.k[i] = dirty.v[i] = kNan;
      for (const KernelTable* table : tables()) {
        const auto a = run_case(*table, kernel_case(clean, half), 1, 1, 0);
        const auto b = run_case(*table, kernel_case(dirty, half), 1, 1, 0);
        const size_t seen = size_t(s + 1) * 6 * D * 4;
        CHECK(std::equal(a.begin(), a.begin() + long(seen), b.begin()));
        if (s + 1 < S) CHECK(!std::equal(a.begin() + long(seen), a.end(), b.begin() + long(seen)));
      }
    }
}

// Every score is within gamma(D + 1) of its sum of magnitudes and exp within 4 ulp, so weights
// differ by a factor e^(2 d) at most, d the largest score error plus 5 u; the sums over n positions
// add gamma(n + 3) of their magnitudes each.
TEST(test_attention_is_within_its_bound_of_float64) {
  const Problem t = make(3, 4, 2, 64, 300, 290, 200, true);
  const double u = 0x1p-24;
  for (const Bytes& b : check_case(kernel_case(t, false))) {
    const auto got = values_of<float>(b);
    for (unsigned s = 0; s < 3; ++s)
      for (unsigned h = 0; h < 4; ++h) {
        const unsigned D = 64, kv = h / 2;
        const size_t n = t.seen(s).size();
        std::vector<double> e(n);
        double most = -1e300, worst = 0;
        for (size_t j = 0; j < n; ++j) {
          double dot = 0, size = 0;
          for (unsigned c = 0; c < D; ++c) {
            const double x = double(t.q[(s * 4 + h) * D + c]) * t.k[(j * 2 + kv) * D + c];
            dot += x;
            size += std::fabs(x);
          }
          e[j] = dot * t.scale;
          worst = std::max(worst, (D + 2) * u * size * t.scale);
          most = std::max(most, e[j]);
        }
        double l = 0;
        for (double& x : e) l += x = std::exp(x - most);
        for (unsigned c = 0; c < D; ++c) {
          double o = 0, size = 0;
          for (size_t j = 0; j < n; ++j) {
            o += e[j] * t.v[(j * 2 + kv) * D + c];
            size += e[j] * std::fabs(double(t.v[(j * 2 + kv) * D + c]));
          }
          // |score| up to about 60 here: the subtraction of the maximum rounds once more, at most
          // 64 u.
          const double room =
              size / l * (std::expm1(2 * (worst + 64 * u)) + 4 * 8 * u + 2.0 * double(n + 6) * u);
          CHECK(std::fabs(got[(s * 4 + h) * D + c] - o / l) <= room);
        }
      }
  }
}

}  // namespace
