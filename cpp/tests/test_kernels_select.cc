// argmax, the masks, sample_categorical and the penalties: exact operators, compared bit for bit
// with references that sort or scan.
#include <limits>
#include <numeric>

#include "kernels_util.h"
#include "shared/params/penalties.h"
#include "shared/params/rows.h"

using namespace kernels_util;

namespace {

const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();
const unsigned kSizes[] = {1, 7, 15, 16, 17, 31, 63, 64, 65, 127, 128, 129, 1000, 5000, 20011};

// sparse: what a mask leaves; striped: the greatest share an index mod 128, where short lists gain
// nothing; stepped: equal entries around every bound.
enum class Data { distinct, ties, special, equal, peaked, sparse, striped, stepped };
std::vector<float> make(unsigned n, Data data, uint64_t seed) {
  static const float special[] = {0.0f,      -0.0f,      kInf,     -kInf,      kNan,
                                  0x1p-149f, -0x1p-149f, -3.4e38f, -3.402e38f, 1.0f};
  Random random(seed);
  std::vector<float> v(n);
  for (float& x : v) {
    if (data == Data::distinct) x = random.between(-9, 9);
    if (data == Data::ties) x = float(random.next() % 7) - 3;
    if (data == Data::special) x = special[random.next() % 10];
    if (data == Data::equal) x = 0.25f;
    if (data == Data::peaked) x = std::exp(random.between(-30, 0));
    if (data == Data::sparse) x = random.next() % (n / 40 + 1) ? 0.0f : random.between(0, 1);
    if (data == Data::striped)
      x = random.between(0, 1) + ((&x - v.data()) % 128 == 5 ? 2.0f : 0.0f);
    if (data == Data::stepped) x = float(random.next() % (n / 20 + 2)) / 8;
  }
  return v;
}
const Data kAll[] = {Data::distinct, Data::ties,   Data::special, Data::equal,
                     Data::peaked,   Data::sparse, Data::striped, Data::stepped};

// (value descending, index ascending); equal zeros, NaN last.
std::vector<uint32_t> order_of(const float* x, unsigned n) {
  std::vector<uint32_t> index(n);
  std::iota(index.begin(), index.end(), 0u);
  std::stable_sort(index.begin(), index.end(), [&](uint32_t a, uint32_t b) {
    if (std::isnan(x[a]) || std::isnan(x[b])) return !std::isnan(x[a]) && std::isnan(x[b]);
    return x[a] > x[b];
  });
  return index;
}

TEST(test_argmax_lowest_index_of_the_greatest) {
  for (unsigned width : kSizes)
    for (Data data : kAll)
      for (unsigned rows : {1u, 3u}) {
        auto x = make(rows * width, data, width);
        if (rows == 3)
          for (unsigned i = 0; i < width; ++i) x[i] = i % 2 ? kNan : -3.4e38f;  // nothing wins
        const RowsParams p = {rows, width, 0, 0, 0, 0};
        check_case({"argmax_f32", {bytes_of(x)}, Bytes(4 * rows, 0x5a), &p, {}, Kind::bytes},
                   [&](const Level&) {
                     std::vector<uint32_t> out;
                     for (unsigned r = 0; r < rows; ++r) {
                       float best = -3.4e38f;
                       uint32_t at = 0;
                       for (unsigned i = 0; i < width; ++i)
                         if (x[r * width + i] > best) best = x[r * width + i], at = i;
                       out.push_back(at);
                     }
                     return bytes_of(out);
                   });
      }
}

TEST(test_top_k_mask_keeps_exactly_k) {
  for (unsigned width : kSizes)
    for (Data data : kAll)
      for (unsigned k : {1u, 5u, 128u, width / 2, width - 1, width}) {
        if (k == 0 || k > width) continue;
        const unsigned rows = 2;
        const auto x = make(rows * width, data, width + k);
        const RowsParams p = {rows, width, 0, 0, k, k > 128};
        check_case({"top_k_mask_f32", {bytes_of(x)}, Bytes(4 * rows * width, 0x5a), &p, {}},
                   [&](const Level&) {
                     std::vector<float> out(x.size(), 0.0f);
                     for (unsigned r = 0; r < rows; ++r) {
                       const auto order = order_of(&x[r * width], width);
                       for (unsigned i = 0; i < k; ++i)
                         out[r * width + order[i]] = x[r * width + order[i]];
                     }
                     return bytes_of(out);
                   });
      }
}

float lane_sum(const float* x, unsigned n) {
  float lane[128] = {};
  for (unsigned i = 0; i < n; ++i) lane[i % 128] = lane[i % 128] + x[i];
  for (int s = 64; s >= 1; s /= 2)
    for (int i = 0; i < s; ++i) lane[i] = lane[i] + lane[i + s];
  return lane[0];
}
std::vector<float> nucleus(const float* row, unsigned width, float top, bool exact) {
  std::vector<float> out(width, 0.0f);
  const auto order = order_of(row, width);
  const float target = top * lane_sum(row, width);
  float kept = 0;
  for (unsigned i = 0; i < width && (exact || i < 128) && kept < target; ++i) {
    kept = kept + row[order[i]];
    out[order[i]] = row[order[i]];
  }
  return out;
}
TEST(test_top_p_mask_keeps_the_nucleus_and_its_crossing_entry) {
  for (unsigned width : kSizes)
    for (Data data : kAll)
      for (float top : {0.01f, 0.5f, 0.9f, 1.0f})
        for (unsigned exact : {0u, 1u}) {
          if (width > 1000 && top != 0.5f && top != 1.0f) continue;
          const unsigned rows = 3;
          auto x = make(rows * width, data, width + 77);
          for (float& v : x)
            if (data != Data::special) v = std::fabs(v);
          for (unsigned i = 0; i < width; ++i) x[i] = 0.0f;  // nothing to take
          const RowsParams p = {rows, width, 0, top, 0, exact};
          check_case({"top_p_mask_f32", {bytes_of(x)}, Bytes(4 * rows * width, 0x5a), &p, {}},
                     [&](const Level&) {
                       std::vector<float> out;
                       for (unsigned r = 0; r < rows; ++r) {
                         const auto row = nucleus(&x[r * width], width, top, exact);
                         out.insert(out.end(), row.begin(), row.end());
                       }
                       return bytes_of(out);
                     });
        }
}

// A target that all positive entries miss by a rounding: entries of no weight and below are taken
// too, and keep their sign.
TEST(test_top_p_mask_takes_what_lies_below_zero) {
  const unsigned width = 3001;
  for (unsigned seed = 0; seed < 24; ++seed)
    for (unsigned exact : {0u, 1u}) {
      Random random(seed + 1);
      std::vector<float> x(width, seed % 3 ? 0.0f : -0.0f);
      for (int i = 0; i < 60; ++i) x[random.next() % width] = random.between(0, 1);
      if (seed % 3 == 2) x[random.next() % width] = -0x1p-140f;
      const RowsParams p = {1, width, 0, 1.0f, 0, exact};
      check_case({"top_p_mask_f32", {bytes_of(x)}, Bytes(4 * width, 0x5a), &p, {}},
                 [&](const Level&) { return bytes_of(nucleus(x.data(), width, 1.0f, exact)); });
    }
}

uint32_t sample(const float* w, unsigned n, float draw) {
  const auto running = [&](auto visit) {
    float carry = 0, s = 0;
    for (unsigned i = 0; i < n; ++i) {
      if (i && i % 256 == 0) carry = carry + s, s = 0;
      s = s + w[i];
      if (visit(i, carry + s)) return;
    }
  };
  draw = std::isnan(draw) || draw < 0 ? 0 : std::min(draw, 0x1.fffffep-1f);
  float total = 0;
  running([&](unsigned, float sum) { return total = sum, false; });
  const float target = draw * total;
  uint32_t pick = n - 1;
  running([&](unsigned i, float sum) { return sum > target ? pick = i, true : false; });
  return pick;
}
TEST(test_sample_categorical_scans_in_blocks_of_256) {
  for (unsigned width : {1u, 7u, 255u, 256u, 257u, 1000u, 1024u, 5000u, 70001u})
    for (Data data : kAll) {
      const std::vector<float> draws = {0.0f, 0.25f, 0.5f, 0.99999994f, 1.0f,
                                        kNan, -3.0f, 2.0f, 0.7f};
      const unsigned rows = unsigned(draws.size());
      auto w = make(rows * width, data, width);
      for (float& v : w)
        if (data == Data::ties) v = std::max(v, 0.0f);
      for (unsigned i = 0; i < width; ++i) w[8 * width + i] = 0.0f;
      const RowsParams p = {rows, width, 0, 0, 0, 0};
      check_case({"sample_categorical_f32",
                  {bytes_of(w), bytes_of(draws)},
                  Bytes(4 * rows, 0x5a),
                  &p,
                  {},
                  Kind::bytes},
                 [&](const Level&) {
                   std::vector<uint32_t> out;
                   for (unsigned r = 0; r < rows; ++r)
                     out.push_back(sample(&w[r * width], width, draws[r]));
                   return bytes_of(out);
                 });
    }
}

// CONTRACT 17 and 18: the generator's draws as weights, and three picks.
TEST(test_sample_categorical_vector) {
  const auto draw = [](uint64_t seed, uint64_t step) {
    uint64_t z = seed + step * 0x9E3779B97F4A7C15ull;
    z ^= z >> 30, z *= 0xBF58476D1CE4E5B9ull, z ^= z >> 27, z *= 0x94D049BB133111EBull,
        z ^= z >> 31;
    return float(z >> 40) * 0x1p-24f;
  };
  std::vector<float> w(3000);
  for (unsigned i = 0; i < 3000; ++i) w[i] = draw(7, i % 1000);
  const std::vector<float> draws = {0.25f, draw(42, 3596), 0.99999994f};
  CHECK_EQ(draws[1] * 0x1p24f, 13377292.0f);
  const RowsParams p = {3, 1000, 0, 0, 0, 0};
  check_case({"sample_categorical_f32",
              {bytes_of(w), bytes_of(draws)},
              Bytes(12, 0x5a),
              &p,
              {},
              Kind::bytes},
             [](const Level&) {
               return bytes_of(std::vector<uint32_t>{240, 785, 999});
             });
}

TEST(test_penalties_clear_count_apply) {
  const unsigned vocab = 1003, history = 40;
  const PenaltyParams p = {vocab, history};
  std::vector<uint32_t> counts(vocab, 7), zero(vocab, 0), ids(history);
  Random random(5);
  for (uint32_t& id : ids) id = random.next() % 30;
  ids[3] = vocab;
  ids[4] = 0xffffffffu;
  ids[5] = vocab - 1;
  check_case({"penalty_clear", {}, bytes_of(counts), &p, {}, Kind::bytes},
             [&](const Level&) { return bytes_of(zero); });
  for (uint32_t n :
       {0u, 17u, 40u, 41u, 0xffffffffu}) {  // more than the history holds is the history
    std::vector<uint32_t> counted = zero;
    for (uint32_t i = 0; i < std::min(n, history); ++i)
      if (ids[i] < vocab) ++counted[ids[i]];
    for (const KernelTable* table : tables()) {
      KernelCase c = {"penalty_count", {bytes_of(ids)}, bytes_of(zero), &p, {n}, Kind::bytes, true};
      CHECK(run_case(*table, c, 1, 1, 4) == bytes_of(counted));
    }
    auto logits = make(vocab, Data::special, 9);
    for (unsigned i = 0; i < vocab; i += 2) logits[i] = random.between(-5, 5);
    for (float rep : {0.0f, 1.0f, 1.3f})
      for (float pres : {0.0f, 0.7f}) {
        const float freq = 0.11f;
        check_case({"penalty_apply",
                    {bytes_of(logits), bytes_of(counted)},
                    Bytes(4 * vocab, 0x5a),
                    &p,
                    {bits_of(rep), bits_of(pres), bits_of(freq)}},
                   [&](const Level&) {
                     std::vector<float> out(logits);
                     for (unsigned i = 0; i < vocab; ++i) {
                       if (counted[i] == 0) continue;
                       if (rep != 0 && rep != 1) out[i] = out[i] > 0 ? out[i] / rep : out[i] * rep;
                       out[i] = (out[i] - pres) - freq * float(counted[i]);
                     }
                     return bytes_of(out);
                   });
      }
  }
}

}  // namespace
