// The CPU kernels that move values, work element by element or along rows: against plain loops bit
// for bit where the order is registered, in every table, for odd sizes, addresses and numbers of
// chunks.
#include <limits>

#include "base/dtype.h"
#include "kernels_util.h"
#include "shared/params/contiguous.h"
#include "shared/params/copy.h"
#include "shared/params/elementwise.h"
#include "shared/params/gather_rows.h"
#include "shared/params/rope.h"
#include "shared/params/rows.h"
#include "shared/params/scatter_rows.h"

using namespace kernels_util;
using accel::bf16_from_f32;
using accel::f16_from_f32;
using accel::f32_from_bf16;
using accel::f32_from_f16;

namespace {

const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();
const unsigned kSizes[] = {1, 7, 15, 16, 17, 31, 63, 64, 65, 127, 1000};

// Ordinary values with special ones among them.
std::vector<float> mixed(size_t n, uint64_t seed) {
  static const float special[] = {0.0f,    -0.0f,    kInf,  -kInf,  kNan,     0x1p-149f, -0x1p-140f,
                                  3.4e38f, -3.4e38f, 88.0f, -88.0f, 0x1p-24f, 65519.0f,  65520.0f};
  Random random(seed);
  std::vector<float> v(n);
  for (float& x : v)
    x = random.next() % 8 == 0 ? special[random.next() % 14] : random.between(-9, 9);
  return v;
}
std::vector<float> plain(size_t n, uint64_t seed) {
  Random random(seed);
  std::vector<float> v(n);
  for (float& x : v) x = random.between(-3, 3);
  return v;
}
std::vector<uint16_t> halves(const std::vector<float>& v) {
  std::vector<uint16_t> h(v.size());
  for (size_t i = 0; i < v.size(); ++i) h[i] = f16_from_f32(v[i]);
  return h;
}
Bytes filled(size_t n) {
  return Bytes(n, 0x5a);
}

// ---------------------------------------------------------------- element by element

void check_two(const char* name, float (*f)(float, float)) {
  for (unsigned n : kSizes)
    for (unsigned y_block : {n, 1u}) {
      const auto x = mixed(n, 1), y = mixed(y_block, 2);
      const ElementwiseParams p = {n, n, y_block, 0};
      check_case({name + std::string("_f32"), {bytes_of(x), bytes_of(y)}, filled(4 * n), &p, {}},
                 [&](const Level&) {
                   std::vector<float> out(n);
                   for (unsigned i = 0; i < n; ++i) out[i] = f(x[i], y[i % y_block]);
                   return bytes_of(out);
                 });
      const auto xh = halves(x), yh = halves(y);
      check_case({name + std::string("_f16"),
                  {bytes_of(xh), bytes_of(yh)},
                  filled(2 * n),
                  &p,
                  {},
                  Kind::f16,
                  false,
                  2},
                 [&](const Level&) {
                   std::vector<uint16_t> out(n);
                   for (unsigned i = 0; i < n; ++i)
                     out[i] = f16_from_f32(f(f32_from_f16(xh[i]), f32_from_f16(yh[i % y_block])));
                   return bytes_of(out);
                 });
    }
}
TEST(test_add_is_exact) {
  check_two("add", [](float x, float y) { return x + y; });
}
TEST(test_mul_is_exact) {
  check_two("mul", [](float x, float y) { return x * y; });
}

TEST(p26_51_elementwise_reads_repeated_runs_in_place) {
  // Large enough that the kernel's own choice is several chunks.
  const unsigned n = 90000;
  for (unsigned x_block : {n, 600u, 3u})
    for (unsigned y_block : {n, 250u, 1u}) {
      const auto x = plain(x_block, 3), y = plain(y_block, 4);
      const ElementwiseParams p = {n, x_block, y_block, 0};
      check_case({"add_f32", {bytes_of(x), bytes_of(y)}, filled(4 * n), &p, {}}, [&](const Level&) {
        std::vector<float> out(n);
        for (unsigned i = 0; i < n; ++i) out[i] = x[i % x_block] + y[i % y_block];
        return bytes_of(out);
      });
    }
}

TEST(test_scale_is_exact) {
  for (unsigned n : kSizes)
    for (unsigned block : {n, 1u}) {
      const auto x = mixed(block, 5);
      const auto xh = halves(x);
      const ElementwiseParams p = {n, block, 1, 0};
      const float factor = -1.7f;
      check_case({"scale_f32", {bytes_of(x)}, filled(4 * n), &p, {bits_of(factor)}},
                 [&](const Level&) {
                   std::vector<float> out(n);
                   for (unsigned i = 0; i < n; ++i) out[i] = x[i % block] * factor;
                   return bytes_of(out);
                 });
      check_case(
          {"scale_f16", {bytes_of(xh)}, filled(2 * n), &p, {bits_of(factor)}, Kind::f16, false, 2},
          [&](const Level&) {
            std::vector<uint16_t> out(n);
            for (unsigned i = 0; i < n; ++i)
              out[i] = f16_from_f32(f32_from_f16(xh[i % block]) * factor);
            return bytes_of(out);
          });
    }
}

// exp within 4 ulp enters 1 + exp (half an ulp more) and the quotient (half an ulp): 5 ulp, and one
// product more is 5.5.
void check_activation(const std::string& name, double ulps, bool two) {
  for (unsigned n : kSizes) {
    std::vector<float> x(n), y = plain(n, 7);
    for (unsigned i = 0; i < n; ++i)
      x[i] = n == 1 ? -0.5f : -20.0f + 40.0f * float(i) / float(n - 1);
    const ElementwiseParams p = {n, n, two ? n : 1, 0};
    KernelCase c = {name + "_f32", {bytes_of(x)}, filled(4 * n), &p, {}};
    if (two) c.in.push_back(bytes_of(y));
    for (const Bytes& b : check_case(c)) {
      const auto out = values_of<float>(b);
      for (unsigned i = 0; i < n; ++i) {
        const double exact =
            double(x[i]) / (1 + std::exp(-double(x[i]))) * (two ? double(y[i]) : 1);
        CHECK(std::fabs(out[i] - exact) <= ulps * 0x1p-23 * std::fabs(exact));
      }
    }
    // f16: the f32 evaluation rounded once.
    const auto xh = halves(x), yh = halves(y);
    std::vector<float> xw(n), yw(n);
    for (unsigned i = 0; i < n; ++i) xw[i] = f32_from_f16(xh[i]), yw[i] = f32_from_f16(yh[i]);
    c.in[0] = bytes_of(xw);
    if (two) c.in[1] = bytes_of(yw);
    const auto wide = check_case(c);
    KernelCase h = {name + "_f16", {bytes_of(xh)}, filled(2 * n), &p, {}, Kind::f16, false, 2};
    if (two) h.in.push_back(bytes_of(yh));
    const auto narrow = check_case(h);
    for (size_t t = 0; t < wide.size(); ++t)
      CHECK(same(bytes_of(halves(values_of<float>(wide[t]))), narrow[t], Kind::f16));
  }
}
TEST(test_silu_within_its_bound) {
  check_activation("silu", 5, false);
}
TEST(test_swiglu_within_its_bound) {
  check_activation("swiglu", 5.5, true);
}
TEST(test_silu_ends) {
  const std::vector<float> x = {-kInf, kInf, kNan, -1000.0f, 1000.0f, 0.0f, -0.0f};
  const ElementwiseParams p = {7, 7, 1, 0};
  for (const Bytes& b : check_case({"silu_f32", {bytes_of(x)}, filled(28), &p, {}})) {
    const auto y = values_of<float>(b);
    CHECK(std::isnan(y[0]) && y[1] == kInf && std::isnan(y[2]));
    CHECK_EQ(bits_of(y[3]), bits_of(-0.0f));
    CHECK(y[4] == 1000.0f && bits_of(y[5]) == 0 && bits_of(y[6]) == bits_of(-0.0f));
  }
}

// ---------------------------------------------------------------- casts

TEST(test_cast_widens_every_16_bit_value) {
  std::vector<uint16_t> x(65536);
  std::vector<float> h(65536), b(65536);
  for (unsigned i = 0; i < 65536; ++i)
    x[i] = uint16_t(i), h[i] = f32_from_f16(x[i]), b[i] = f32_from_bf16(x[i]);
  const ElementwiseParams p = {65536, 65536, 1, 0};
  check_case({"cast_f16_f32", {bytes_of(x)}, filled(4 * 65536), &p, {}},
             [&](const Level&) { return bytes_of(h); });
  check_case({"cast_bf16_f32", {bytes_of(x)}, filled(4 * 65536), &p, {}},
             [&](const Level&) { return bytes_of(b); });
}

TEST(test_cast_to_f16_rounds_to_nearest_even) {
  std::vector<float> x;
  Random random(11);
  for (uint32_t e = 0; e < 512; ++e)
    for (int i = 0; i < 64; ++i) x.push_back(float_of(e << 23 | (random.next() >> 9)));
  // Every halfway case between neighbours, and the values next to it.
  for (uint32_t i = 0; i < 0x7c00; ++i) {
    const double low = f32_from_f16(uint16_t(i)),
                 high = i == 0x7bff ? 65536.0 : double(f32_from_f16(uint16_t(i + 1)));
    const float middle = float((low + high) / 2);
    for (float v : {middle, std::nextafter(middle, 0.0f), std::nextafter(middle, kInf)}) {
      x.push_back(v);
      x.push_back(-v);
    }
  }
  for (float v : {kInf, -kInf, kNan, -kNan, 0.0f, -0.0f, 3.4e38f, float_of(0x7f800001u)})
    x.push_back(v);
  const auto expected = halves(x);
  const ElementwiseParams p = {unsigned(x.size()), unsigned(x.size()), 1, 0};
  check_case({"cast_f32_f16", {bytes_of(x)}, filled(2 * x.size()), &p, {}, Kind::bytes},
             [&](const Level&) { return bytes_of(expected); });
  CHECK_EQ(expected[expected.size() - 6], uint16_t(0x7e00));
  CHECK_EQ(expected[expected.size() - 5], uint16_t(0x7e00));
}

// ---------------------------------------------------------------- moves

TEST(test_copy_copies_bytes) {
  for (unsigned n : {1u, 63u, 64u, 65u, 1000u, 1000000u}) {
    Bytes x(n);
    for (unsigned i = 0; i < n; ++i) x[i] = uint8_t(i * 7 + 1);
    const CopyParams p = {n, 0};
    check_case({"copy_bytes", {x}, filled(n), &p, {}, Kind::bytes, false, 1},
               [&](const Level&) { return x; });
  }
}

template <class T>
void check_contiguous(const ContiguousParams& p, size_t source) {
  std::vector<T> x(source), out;
  for (size_t i = 0; i < source; ++i) x[i] = T(i * 2654435761u);
  for (unsigned i = 0; i < p.n; ++i) {
    unsigned rest = i, from = 0;
    for (int axis = int(p.rank) - 1; axis >= 0; --axis) {
      from += rest % p.shape[axis] * p.strides[axis];
      rest /= p.shape[axis];
    }
    out.push_back(x[from]);
  }
  check_case({"contiguous_" + std::to_string(sizeof(T)),
              {bytes_of(x)},
              filled(p.n * sizeof(T)),
              &p,
              {},
              Kind::bytes,
              false,
              sizeof(T)},
             [&](const Level&) { return bytes_of(out); });
}
TEST(test_contiguous_walks_strides) {
  const ContiguousParams cases[] = {
      {35, 2, {5, 7, 1, 1, 1, 1, 1, 1}, {1, 5, 0, 0, 0, 0, 0, 0}},        // transposed
      {60, 3, {3, 4, 5, 1, 1, 1, 1, 1}, {0, 5, 1, 0, 0, 0, 0, 0}},        // broadcast
      {24, 4, {2, 1, 3, 4, 1, 1, 1, 1}, {64, 9, 16, 2, 0, 0, 0, 0}},      // every second element
      {256, 8, {2, 2, 2, 2, 2, 2, 2, 2}, {1, 2, 4, 8, 16, 32, 64, 128}},  // eight axes reversed
      {1, 1, {1, 1, 1, 1, 1, 1, 1, 1}, {0, 0, 0, 0, 0, 0, 0, 0}},
      {40000, 2, {200, 200, 1, 1, 1, 1, 1, 1}, {1, 200, 0, 0, 0, 0, 0, 0}}};
  for (const ContiguousParams& p : cases) {
    check_contiguous<uint8_t>(p, 40000);
    check_contiguous<uint16_t>(p, 40000);
    check_contiguous<uint32_t>(p, 40000);
  }
}

TEST(p26_12_gather_rows_widens_and_zeroes_ids_out_of_range) {
  for (unsigned width : kSizes) {
    const unsigned rows = 9, n = 5;
    const std::vector<uint32_t> ids = {8, 0, 9, 0xffffffffu, 3};
    const auto x = mixed(rows * width, 13);
    std::vector<uint16_t> h = halves(x), b(x.size());
    for (size_t i = 0; i < x.size(); ++i) b[i] = bf16_from_f32(x[i]);
    const GatherRowsParams p = {rows, width, n, 0};
    const auto expect = [&](auto value) {
      std::vector<float> out;
      for (uint32_t id : ids)
        for (unsigned c = 0; c < width; ++c)
          out.push_back(id < rows ? value(id * width + c) : 0.0f);
      return bytes_of(out);
    };
    const auto check = [&](const char* name, const Bytes& table, size_t element, auto value) {
      check_case({name,
                  {table, bytes_of(ids)},
                  filled(4 * n * width),
                  &p,
                  {},
                  Kind::f32,
                  false,
                  element == 2 ? 4 : element},
                 [&](const Level&) { return expect(value); });
    };
    check("gather_rows_f32", bytes_of(x), 4, [&](size_t i) { return x[i]; });
    check("gather_rows_f16", bytes_of(h), 2, [&](size_t i) { return f32_from_f16(h[i]); });
    check("gather_rows_bf16", bytes_of(b), 2, [&](size_t i) { return f32_from_bf16(b[i]); });
  }
}

TEST(test_quant_gather_rows_scales_by_flat_blocks) {
  for (unsigned width : kSizes) {
    const unsigned rows = 9, n = 6;
    const std::vector<uint32_t> ids = {8, 0, 9, 0xffffffffu, 3, 1};
    Random random(17);
    std::vector<int8_t> q(rows * width);
    for (int8_t& v : q) v = int8_t(random.next());
    std::vector<uint16_t> s((rows * width + 31) / 32);
    for (uint16_t& v : s) v = f16_from_f32(random.between(-1, 1));
    s[0] = 1;  // subnormal
    const GatherRowsParams p = {rows, width, n, 0};
    check_case({"quant_gather_rows",
                {bytes_of(q), bytes_of(s), bytes_of(ids)},
                filled(4 * n * width),
                &p,
                {}},
               [&](const Level&) {
                 std::vector<float> out;
                 for (uint32_t id : ids)
                   for (unsigned c = 0; c < width; ++c) {
                     const size_t i = size_t(id) * width + c;
                     out.push_back(id < rows ? float(q[i]) * f32_from_f16(s[i / 32]) : 0.0f);
                   }
                 return bytes_of(out);
               });
  }
}

template <class T>
void check_scatter(unsigned width) {
  const unsigned capacity = 6;
  const std::vector<uint32_t> ids = {2, 5, 2, 6, 0xffffffffu, 0, 2};  // the last of equal ids wins
  std::vector<T> state(capacity * width), rows(ids.size() * width);
  for (size_t i = 0; i < state.size(); ++i) state[i] = T(i + 40000);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = T(i);
  const ScatterRowsParams p = {capacity, width, unsigned(ids.size()), 0};
  KernelCase c = {"scatter_rows_" + std::to_string(sizeof(T)),
                  {bytes_of(rows), bytes_of(ids)},
                  bytes_of(state),
                  &p,
                  {},
                  Kind::bytes,
                  true,
                  4};
  check_case(c, [&](const Level&) {
    auto out = state;
    for (size_t r = 0; r < ids.size(); ++r)
      for (unsigned i = 0; i < width && ids[r] < capacity; ++i)
        out[ids[r] * width + i] = rows[r * width + i];
    return bytes_of(out);
  });
}
TEST(p26_12_scatter_rows_last_of_equal_ids_wins) {
  for (unsigned width : kSizes) {
    check_scatter<uint32_t>(width);
    check_scatter<uint16_t>(width);
  }
  check_scatter<uint32_t>(20000);
}

// ---------------------------------------------------------------- rows

// rms_norm written out: lane16, then each operation of the formula.
std::vector<float> rms_norm(const Level& level, const std::vector<float>& x,
                            const std::vector<float>& gain, float eps) {
  const size_t width = gain.size();
  std::vector<float> out(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    float lane[16] = {};
    for (size_t i = 0; i < width; ++i)
      lane[i % 16] = level.fma(x[row + i], x[row + i], lane[i % 16]);
    const float scale = 1.0f / std::sqrt(tree16(lane) / float(width) + eps);
    for (size_t i = 0; i < width; ++i) out[row + i] = x[row + i] * scale * gain[i];
  }
  return out;
}
TEST(test_rms_norm_has_the_bits_of_its_order) {
  for (unsigned width : kSizes) {
    const unsigned rows = 3;
    auto x = plain(rows * width, 19);
    for (unsigned i = 0; i < width; ++i) x[width + i] *= 1e-20f;  // eps decides this row
    const auto gain = plain(width, 20);
    const RowsParams p = {rows, width, 1e-6f, 0, 0, 0};
    check_case({"rms_norm_f32", {bytes_of(x), bytes_of(gain)}, filled(4 * rows * width), &p, {}},
               [&](const Level& level) { return bytes_of(rms_norm(level, x, gain, p.eps)); });
    const auto xh = halves(x);
    check_case({"rms_norm_f16",
                {bytes_of(xh), bytes_of(gain)},
                filled(2 * rows * width),
                &p,
                {},
                Kind::f16,
                false,
                4},
               [&](const Level& level) {
                 std::vector<float> w(xh.size());
                 for (size_t i = 0; i < w.size(); ++i) w[i] = f32_from_f16(xh[i]);
                 return bytes_of(halves(rms_norm(level, w, gain, p.eps)));
               });
  }
}

// The exponentials come from the table itself, so that maximum, order of the sum and quotient are
// compared bit for bit.
Bytes softmax(const KernelTable& table, const std::vector<float>& x, unsigned width) {
  std::vector<float> out(x.size());
  for (size_t row = 0; row < x.size(); row += width) {
    float most = -kInf;
    for (unsigned i = 0; i < width; ++i) most = x[row + i] > most ? x[row + i] : most;
    std::vector<float> d(width), e(width);
    for (unsigned i = 0; i < width; ++i) d[i] = x[row + i] - most;
    const ElementwiseParams p = {width, width, 1, 0};
    run(find(table, "exp_f32"), {d.data(), e.data()}, &p, {}, 1);
    float lane[16] = {};
    for (unsigned i = 0; i < width; ++i) lane[i % 16] = lane[i % 16] + e[i];
    const float sum = tree16(lane);
    for (unsigned i = 0; i < width; ++i) out[row + i] = e[i] / sum;
  }
  return bytes_of(out);
}
TEST(test_softmax_has_the_bits_of_its_order) {
  for (unsigned width : kSizes)
    for (unsigned rows : {1u, 3u, 6u}) {
      auto x = plain(rows * width, 23);
      for (float& v : x) v = v * 30 - (rows == 1 ? 300 : 0);  // all below zero: no padding may win
      if (rows > 3) {                                         // rows of -inf, with +inf, with NaN
        for (unsigned i = 0; i < width; ++i) x[i] = -kInf;
        x[width + width / 2] = kInf;
        x[2 * width + width / 3] = kNan;
        x[3 * width] = -kInf;
      }
      const RowsParams p = {rows, width, 0, 0, 0, 0};
      const auto results =
          check_case({"softmax_f32", {bytes_of(x)}, filled(4 * rows * width), &p, {}});
      const auto all = tables();
      for (size_t t = 0; t < all.size(); ++t) {
        CHECK(same(results[t], softmax(*all[t], x, width), Kind::f32));
        const auto y = values_of<float>(results[t]);
        if (rows > 3)
          for (unsigned i = 0; i < 3 * width; ++i) CHECK(std::isnan(y[i]));
        if (rows > 3 && width > 1) CHECK_EQ(bits_of(y[3 * width]), 0u);
      }
    }
}
// Quotients are not divided where a remainder is exact: divisors and shares of every size, among
// them shares and quotients below the normal range.
TEST(test_softmax_quotients_are_rounded_once) {
  for (unsigned width : {64u, 1000u, 4096u})
    for (float spread : {0.0f, 0.5f, 20.0f, 60.0f, 75.0f, 90.0f, 104.0f, 130.0f}) {
      Random random(width + unsigned(spread));
      std::vector<float> x(6 * width);
      for (float& v : x) v = random.between(-spread, 0);
      for (unsigned i = 0; i < width; i += 3) x[i] = -kInf;
      const RowsParams p = {6, width, 0, 0, 0, 0};
      const auto results = check_case({"softmax_f32", {bytes_of(x)}, filled(4 * x.size()), &p, {}});
      const auto all = tables();
      for (size_t t = 0; t < all.size(); ++t)
        CHECK(same(results[t], softmax(*all[t], x, width), Kind::f32));
    }
}
TEST(test_softmax_of_one_long_row_is_cut_without_a_trace) {
  const unsigned width = 50001;
  const auto x = plain(width, 29);
  const RowsParams p = {1, width, 0, 0, 0, 0};
  const auto results = check_case({"softmax_f32", {bytes_of(x)}, filled(4 * width), &p, {}});
  const auto all = tables();
  for (size_t t = 0; t < all.size(); ++t) {
    CHECK(same(results[t], softmax(*all[t], x, width), Kind::f32));
    double sum = 0;
    for (float v : values_of<float>(results[t])) sum += v;
    CHECK(std::fabs(sum - 1) < 1e-5);
    CHECK(find(*all[t], "softmax_f32").phases[0].chunks(&p, 16) > 1);
  }
}

TEST(test_rope_rotates_pairs_and_copies_the_rest) {
  for (unsigned width : {2u, 7u, 16u, 64u, 65u, 130u})
    for (unsigned part : {width, width / 2})
      for (unsigned halves_ : {0u, 1u})
        for (unsigned per : {1u, 3u}) {
          const unsigned rotary = part / 2 * 2, rows = 6;
          if (rotary == 0) continue;
          const auto x = plain(rows * width, 31);
          std::vector<uint32_t> at(rows / per);
          for (size_t i = 0; i < at.size(); ++i) at[i] = uint32_t(i * 1313 + (i == 1 ? 900000 : 0));
          std::vector<float> f(rotary / 2);
          for (unsigned k = 0; k < f.size(); ++k)
            f[k] = float(std::exp(-2.0 * k / rotary * std::log(10000.0)));
          const RopeParams p = {rows, width, rotary, per, halves_, 0};
          const auto results = check_case({"rope_f32",
                                           {bytes_of(x), bytes_of(at), bytes_of(f)},
                                           filled(4 * rows * width),
                                           &p,
                                           {}});
          for (const Bytes& b : results) {
            const auto y = values_of<float>(b);
            for (unsigned r = 0; r < rows; ++r) {
              for (unsigned c = rotary; c < width; ++c)
                CHECK_EQ(bits_of(y[r * width + c]), bits_of(x[r * width + c]));
              for (unsigned k = 0; k < rotary / 2; ++k) {
                const unsigned i = r * width + (halves_ ? k : 2 * k),
                               j = i + (halves_ ? rotary / 2 : 1);
                const double theta = double(float(at[r / per]) * f[k]), u = x[i], v = x[j];
                // 2^-20 of each function, and three roundings of the magnitudes.
                const double room = (std::fabs(u) + std::fabs(v)) * (0x1p-20 + 3 * 0x1p-24);
                CHECK(std::fabs(y[i] - (u * std::cos(theta) - v * std::sin(theta))) <= room);
                CHECK(std::fabs(y[j] - (u * std::sin(theta) + v * std::cos(theta))) <= room);
              }
            }
          }
        }
}

// ---------------------------------------------------------------- the tables

TEST(test_tables_hold_the_same_kernels) {
  const auto all = tables();
  CHECK(!all.empty());
  for (const KernelTable* t : all) {
    const auto own = accel::kernels_of(*t), first = accel::kernels_of(*all[0]);
    CHECK_EQ(own.size(), first.size());
    for (size_t i = 0; i < own.size(); ++i) {
      CHECK_EQ(std::string(own[i]->name), std::string(first[i]->name));
      CHECK(own[i]->phases[0].run && own[i]->phases[0].chunks);
    }
  }
}

}  // namespace
