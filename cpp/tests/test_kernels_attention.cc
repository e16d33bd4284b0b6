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

struct Problem {
  AttentionParams p;
  uint32_t length, base;
  float scale;
  std::vector<float> q, k, v;  // caches as f32 values that f16 represents
  uint64_t positions(unsigned s) const {
    const uint64_t len = std::min<uint64_t>(length, p.capacity);
    return p.prefill ? std::min<uint64_t>(len, uint64_t(base) + s + 1) : len;
  }
};

Problem make(unsigned S, unsigned heads, unsigned kv_heads, unsigned head_dim, unsigned capacity,
             uint32_t length, uint32_t base, bool prefill, uint64_t seed = 1) {
  Problem t = {{S, heads, kv_heads, head_dim, capacity, prefill}, length, base, 0.3f, {}, {}, {}};
  Random random(seed);
  t.q.resize(size_t(S) * heads * head_dim);
  t.k.resize(size_t(capacity) * kv_heads * head_dim);
  t.v.resize(t.k.size());
  for (float& x : t.q) x = random.between(-2, 2);
  for (float& x : t.k) x = f32_from_f16(f16_from_f32(random.between(-2, 2)));
  for (float& x : t.v) x = f32_from_f16(f16_from_f32(random.between(-2, 2)));
  return t;
}

Bytes cache(const std::vector<float>& x, bool half) {
  if (!half) return bytes_of(x);
  std::vector<uint16_t> h(x.size());
  for (size_t i = 0; i < x.size(); ++i) h[i] = f16_from_f32(x[i]);
  return bytes_of(h);
}

KernelCase kernel_case(const Problem& t, bool half) {
  return {half ? "attention_f16" : "attention_f32",
          {bytes_of(t.q), cache(t.k, half), cache(t.v, half),
           bytes_of(std::vector<uint32_t>{t.length})},
          Bytes(t.q.size() * 4, 0x5a),
          &t.p,
          {bits_of(t.scale), t.base}};
}

// The order, written out for one row and head. exp is the table's own.
void walk(const KernelTable& table, const Problem& t, unsigned s, unsigned head, float* out) {
  const Level level = {std::string(table.level) == "fma"};
  const auto exps = [&](std::vector<float> x) {
    const ElementwiseParams p = {unsigned(x.size()), unsigned(x.size()), 1, 0};
    std::vector<float> y(x.size());
    run(find(table, "exp_f32"), {x.data(), y.data()}, &p, {}, 1);
    return y;
  };
  const unsigned D = t.p.head_dim, kv = head / (t.p.heads / t.p.kv_heads);
  const float* q = &t.q[(size_t(s) * t.p.heads + head) * D];
  const uint64_t end = t.positions(s);
  float m = -3.4e38f, l = 0;
  std::vector<float> o(D, 0.0f);
  for (uint64_t j0 = 0; j0 < end; j0 += 128) {
    const unsigned n = unsigned(std::min<uint64_t>(128, end - j0));
    std::vector<float> scores(n);
    float most = -3.4e38f;
    for (unsigned j = 0; j < n; ++j) {
      const float* k = &t.k[((j0 + j) * t.p.kv_heads + kv) * D];
      float lane[16] = {};
      for (unsigned c = 0; c < D; ++c) lane[c % 16] = level.fma(q[c], k[c], lane[c % 16]);
      scores[j] = tree16(lane) * t.scale;
      most = scores[j] > most ? scores[j] : most;
    }
    const float next = most > m ? most : m, alpha = exps({m - next})[0];
    for (float& x : scores) x = x - next;
    const auto e = exps(scores);
    float lane[16] = {};
    for (unsigned j = 0; j < n; ++j) lane[j % 16] = lane[j % 16] + e[j];
    l = alpha * l + tree16(lane);
    for (unsigned c = 0; c < D; ++c) {
      o[c] = alpha * o[c];
      for (unsigned j = 0; j < n; ++j)
        o[c] = level.fma(e[j], t.v[((j0 + j) * t.p.kv_heads + kv) * D + c], o[c]);
    }
    m = next;
  }
  for (unsigned c = 0; c < D; ++c) out[c] = end ? o[c] / l : 0.0f;
}

void check_problem(const Problem& t) {
  const auto all = tables();
  for (bool half : {false, true}) {
    const auto results = check_case(kernel_case(t, half));
    for (size_t i = 0; i < all.size(); ++i) {
      std::vector<float> expected(t.q.size());
      for (unsigned s = 0; s < t.p.S; ++s)
        for (unsigned h = 0; h < t.p.heads; ++h)
          walk(*all[i], t, s, h, &expected[(size_t(s) * t.p.heads + h) * t.p.head_dim]);
      if (!same(results[i], bytes_of(expected), Kind::f32))
        check::fail(__FILE__, __LINE__,
                    std::string(all[i]->isa) + (half ? " f16" : " f32") +
                        ": other bits than the walk, S " + std::to_string(t.p.S) + " length " +
                        std::to_string(t.length) + " head_dim " + std::to_string(t.p.head_dim));
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

TEST(test_prefill_of_any_cut_equals_decode) {
  const unsigned total = 150, heads = 6, D = 32;
  const Problem whole = make(total, heads, 2, D, 160, total, 0, true);
  for (const KernelTable* table : tables()) {
    const Bytes at_once = run_case(*table, kernel_case(whole, true), 1, 1, 0);
    const size_t row = size_t(heads) * D * 4;
    for (unsigned from = 0; from < total;) {
      const unsigned n = std::min(total - from, from % 3 == 0 ? 1u : 37u);
      Problem part = whole;
      part.p.S = n;
      part.base = from;
      part.length = from + n;
      part.q.assign(whole.q.begin() + from * heads * D, whole.q.begin() + (from + n) * heads * D);
      const Bytes expected(at_once.begin() + from * row, at_once.begin() + (from + n) * row);
      CHECK(same(run_case(*table, kernel_case(part, true), 0, 4, 4), expected, Kind::f32));
      if (n == 1) {
        part.p.prefill = 0;
        CHECK(same(run_case(*table, kernel_case(part, true), 0, 4, 4), expected, Kind::f32));
      }
      from += n;
    }
  }
}

TEST(test_unseen_positions_never_reach_a_row) {
  const unsigned S = 20, D = 40, kv_heads = 2;
  const Problem clean = make(S, 6, kv_heads, D, 200, 140, 120, true);
  for (bool half : {false, true})
    for (unsigned s : {0u, 7u, 19u}) {
      Problem dirty = clean;
      for (size_t i = size_t(clean.positions(s)) * kv_heads * D; i < dirty.k.size(); ++i)
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
        const size_t n = size_t(t.positions(s));
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
