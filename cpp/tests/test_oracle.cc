// The oracle against numbers worked by hand and the contract's vectors; the slow order walks
// against its budgets.
#include "check.h"

#include <cmath>
#include <random>

#include "graph/builder.h"
#include "graph/sampling.h"
#include "oracle/oracle.h"
#include "oracle/orders.h"

using namespace accel;

namespace {

using Floats = std::vector<float>;
using Words = std::vector<uint32_t>;

// One graph under construction with the contents of its ports.
struct Scene {
  Builder b{"scene"};
  oracle::Inputs inputs;
  std::vector<std::shared_ptr<void>> held;

  template <class T>
  void fill(const std::string& name, DType t, std::vector<T> v) {
    auto p = std::make_shared<std::vector<T>>(std::move(v));
    held.push_back(p);
    inputs.ports[name] = {t, p->data(), int64_t(p->size())};
  }
  Tensor f32(const std::string& name, const Shape& s, Floats v) {
    fill(name, DType::F32, std::move(v));
    return b.input(name, DType::F32, s);
  }
  Tensor u32(const std::string& name, const Shape& s, Words v) {
    fill(name, DType::U32, std::move(v));
    return b.input(name, DType::U32, s);
  }
  Tensor f16(const std::string& name, const Shape& s, const Floats& v) {
    std::vector<uint16_t> bits;
    for (float x : v) bits.push_back(f16_from_f32(x));
    fill(name, DType::F16, std::move(bits));
    return b.input(name, DType::F16, s);
  }
  State state(const std::string& name, const Shape& s, Floats v) {
    fill(name, DType::F32, std::move(v));
    return b.state(name, DType::F32, s);
  }
  void scalar(const std::string& name, ScalarValue v) {
    b.scalar(name, v.kind);
    inputs.scalars[name] = v.bits();
  }
  Tensor call(Op op, const std::vector<Operand>& operands, AttrArgs attrs = {}) {
    return Builder::record(op, operands, std::move(attrs), std::source_location::current()).value();
  }
  oracle::Value value(const Tensor& t, oracle::Level level = oracle::Level::f64) {
    Builder copy = b;
    if (outputs == 0) copy.output("out", t);
    ++outputs;
    return oracle::evaluate(b.finish(), inputs, {level, level == oracle::Level::f64}).at("out");
  }
  int outputs = 0;
};

Attr real(double v) {
  Attr a;
  a.set = true;
  a.f = float(v);
  return a;
}
Attr integer(int64_t v) {
  Attr a;
  a.set = true;
  a.i = v;
  return a;
}
Attr text(const std::string& v) {
  Attr a;
  a.set = true;
  a.s = v;
  return a;
}
Attr dtype(DType v) {
  Attr a;
  a.set = true;
  a.dtype = v;
  return a;
}

Floats random(size_t n, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  Floats v(n);
  for (float& x : v) x = normal(engine);
  return v;
}

// By hand in f64: fewer than 16 roundings of values up to 4, each half a unit in the last place.
constexpr double kHand = 16 * 4 * 0x1p-53;
// An f32 quarter turn is off by up to 2^-24, which a partner of up to 3 (below 4) multiplies.
constexpr double kQuarter = 4 * 0x1p-24;
bool near(double a, double b, double tolerance = kHand) {
  return std::abs(a - b) <= tolerance;
}

}  // namespace

// ---------------------------------------------------------------- values

TEST(views_are_walked_by_index) {
  Scene s;
  const Tensor x = s.f32("x", {2, 3}, {1, 2, 3, 4, 5, 6});
  const Tensor t = tensor::contiguous(tensor::slice(tensor::transpose(x, 0, 1), 0, 1, 3));
  CHECK(s.value(t).v == std::vector<double>({2, 5, 3, 6}));
}

TEST(add_broadcasts_and_rounds_once) {
  Scene s;
  const Tensor y =
      s.call(Op::add, {s.f32("x", {2, 2}, {1, 2, 3, 16777216}), s.f32("y", {2}, {10, 1})});
  CHECK(s.value(y).v == std::vector<double>({11, 3, 13, 16777216}));
}

TEST(f16_sums_are_rounded_in_f32_then_stored) {
  Scene s;
  const Tensor y = s.call(Op::add, {s.f16("x", {1}, {2048}), s.f16("y", {1}, {1})});
  CHECK(s.value(y).v == std::vector<double>({2048}));
}

TEST(silu_ends_at_minus_zero) {
  Scene s;
  const auto v = s.value(s.call(Op::silu, {s.f32("x", {4}, {1, -200, -INFINITY, INFINITY})}));
  CHECK(near(v.v[0], 1 / (1 + std::exp(-1.0))));
  CHECK(std::abs(v.v[1]) <= v.budget[1]);
  CHECK(std::isnan(v.v[2]));
  CHECK_EQ(v.v[3], HUGE_VAL);
}

TEST(cast_rounds_to_nearest_even) {
  Scene s;
  const auto v = s.value(
      s.call(Op::cast, {s.f32("x", {3}, {2049, 2051, 65520})}, {{"to", dtype(DType::F16)}}));
  CHECK(v.v == std::vector<double>({2048, 2052, HUGE_VAL}));
}

TEST(gather_gives_zero_rows_out_of_range) {
  Scene s;
  const Tensor y = s.call(Op::gather_rows,
                          {s.f32("t", {2, 2}, {1, 2, 3, 4}), s.u32("i", {3}, {1, 2, 0xffffffff})});
  CHECK(s.value(y).v == std::vector<double>({3, 4, 0, 0, 0, 0}));
}

TEST(scatter_last_of_duplicates_wins) {
  Scene s;
  const State st = s.state("st", {3, 1}, {7, 8, 9});
  const Tensor rows = s.f32("r", {4, 1}, {1, 2, 3, 4}),
               ids = s.u32("i", {4}, {1, 1, 3, 0xffffffff});
  Builder::record(Op::scatter_rows, {st, rows, ids}, {}, std::source_location::current());
  const auto result = oracle::evaluate(s.b.finish(), s.inputs);
  CHECK(result.at("st").v == std::vector<double>({7, 2, 9}));
}

TEST(rms_norm_by_hand) {
  Scene s;
  const Tensor y = s.call(Op::rms_norm, {s.f32("x", {1, 2}, {3, 4}), s.f32("g", {2}, {1, 2})},
                          {{"eps", real(0.5)}});
  const auto v = s.value(y);
  CHECK(near(v.v[0], 3 / std::sqrt(13.0)));
  CHECK(near(v.v[1], 8 / std::sqrt(13.0)));
}

TEST(p26_15_softmax_special_rows_are_nan) {
  Scene s;
  const float inf = INFINITY;
  const auto v =
      s.value(s.call(Op::softmax, {s.f32("x", {4, 2}, {0, 0, -inf, -inf, inf, 1, NAN, 1})}));
  CHECK_EQ(v.v[0], 0.5);
  for (size_t i = 2; i < 8; ++i) CHECK(std::isnan(v.v[i]));
}

TEST(rope_turns_a_quarter) {
  Scene s;
  const float quarter = float(std::acos(0.0));
  const std::vector<Operand> in = {s.f32("x", {1, 4}, {1, 2, 3, 4}), s.u32("p", {1}, {1}),
                                   s.f32("f", {2}, {quarter, 0})};
  const auto adjacent = s.value(s.call(Op::rope, in, {{"rotary_dim", integer(4)}}));
  CHECK(near(adjacent.v[0], -2, kQuarter) && near(adjacent.v[1], 1, kQuarter));
  CHECK(near(adjacent.v[2], 3) && near(adjacent.v[3], 4));
  Scene h;
  const std::vector<Operand> again = {h.f32("x", {1, 4}, {1, 2, 3, 4}), h.u32("p", {1}, {1}),
                                      h.f32("f", {2}, {quarter, 0})};
  const auto halves =
      h.value(h.call(Op::rope, again, {{"rotary_dim", integer(4)}, {"pairing", text("halves")}}));
  CHECK(near(halves.v[0], -3, kQuarter) && near(halves.v[2], 1, kQuarter) && near(halves.v[1], 2));
}

TEST(products_read_both_weight_orders) {
  for (const bool nk : {false, true}) {
    Scene s;
    const Tensor w =
        nk ? s.f32("w", {3, 2}, {1, 4, 2, 5, 3, 6}) : s.f32("w", {2, 3}, {1, 2, 3, 4, 5, 6});
    const Tensor x = s.f32("x", {1, 2}, {10, 1}), bias = s.f32("bias", {3}, {0.5f, 0, 0});
    const auto v = s.value(s.call(Op::linear, {x, w, bias}, {{"w_order", text(nk ? "nk" : "kn")}}));
    CHECK(v.v == std::vector<double>({14.5, 25, 36}));
  }
}

TEST(int4_reads_low_nibbles_first_and_constant_groups) {
  Scene s;
  // Codes 0 1 2 15 0 ..., one group with s = 1, z = 0: the vector of CONTRACT 19.
  Int4 w;
  w.codes = s.u32("c", {1}, {0x0000f210});
  w.scales = s.f16("s", {1}, {1});
  w.zeros = s.f16("z", {1}, {0});
  w.weights = 4;
  const auto v = s.value(s.call(Op::int4_matvec, {s.f32("a", {4}, {1000, 100, 10, 1}), w}));
  CHECK(v.v == std::vector<double>({135}));
  Scene c;
  w.codes = c.u32("c", {1}, {0x0000f210});
  w.scales = c.f16("s", {1}, {0});
  w.zeros = c.f16("z", {1}, {3});
  const auto constant = c.value(c.call(Op::int4_matvec, {c.f32("a", {4}, {1, 1, 1, 1}), w}));
  CHECK(constant.v == std::vector<double>({12}));
}

TEST(attention_sees_what_the_contract_says) {
  Scene s;
  s.scalar("scale", accel::f32(1));
  s.scalar("base", accel::u32(1));
  // Keys are zero, so every visible value has the same weight; row s stands at 1 + s, the length is
  // 3 of 4.
  Floats values(32, NAN);
  for (size_t j = 0; j < 3; ++j) std::fill_n(values.begin() + long(8 * j), 8, float(1 << j));
  Floats keys(32, 0);
  std::fill(keys.begin() + 24, keys.end(), NAN);
  const State k = s.state("k", {4, 1, 8}, keys), v = s.state("v", {4, 1, 8}, values);
  const Tensor q = s.f32("q", {3, 1, 8}, Floats(24, 1));
  const Tensor y =
      s.call(Op::attention, {q, k, v, s.u32("len", {1}, {3}), Operand(), Operand(), Operand()},
             {{"scale_name", text("scale")}, {"base_name", text("base")}});
  const auto r = s.value(y);
  CHECK(near(r.v[0], 1.5) && near(r.v[8], 7.0 / 3) && near(r.v[16], 7.0 / 3));
}

// ---------------------------------------------------------------- sampling

TEST(sample_categorical_vector) {
  Floats w(1000);
  for (size_t i = 0; i < w.size(); ++i) w[i] = Stream{7}.draw(i);
  const float middle = Stream{42}.draw(3596);
  CHECK_EQ(middle, 13377292.0f / 16777216.0f);
  CHECK_EQ(oracle::categorical(w, 0.25f), 240u);
  CHECK_EQ(oracle::categorical(w, middle), 785u);
  CHECK_EQ(oracle::categorical(w, 0.99999994f), 999u);
  // One chain over all entries answers 786: the blocks are seen.
  float chain = 0, running = 0;
  for (float x : w) chain += x;
  size_t i = 0;
  for (; i < w.size() && !(running > middle * chain); ++i) running += w[i];
  CHECK_EQ(i - 1, size_t(786));
}

TEST(sample_categorical_ends) {
  CHECK_EQ(oracle::categorical({0, 0, 1, 0}, 0.0f), 2u);
  CHECK_EQ(oracle::categorical({0, 0, 0}, 0.5f), 2u);
  CHECK_EQ(oracle::categorical({1, 1}, NAN), 0u);
  CHECK_EQ(oracle::categorical({1, 1}, 1.0f), 1u);
}

// ---------------------------------------------------------------- orders

TEST(lane16_is_sixteen_chains_and_a_tree) {
  Floats x(17, 1), w(17, 0);
  w[0] = 1e8f, w[16] = -1e8f, w[8] = 3;  // lane 0 cancels before lane 8 joins it
  CHECK_EQ(oracle::dot("lane16", oracle::Level::fma, x, w), 3.0f);
  CHECK_EQ(oracle::dot("chain", oracle::Level::fma, x, w), 0.0f);
}

TEST(p26_39_levels_round_products_once_or_twice) {
  const float a = 1 + 0x1p-12f;
  CHECK(oracle::mul_add(a, a, -1, oracle::Level::fma) !=
        oracle::mul_add(a, a, -1, oracle::Level::base));
}

// Each walk stays within the budget of the f64 value, and uses a thousandth of it at least.
static void within_budget(const char* what, Scene& s, const Tensor& t) {
  const oracle::Value want = s.value(t);
  double used = 0, distinct = 0;
  for (const oracle::Level level : {oracle::Level::fma, oracle::Level::base}) {
    const oracle::Value got = s.value(t, level);
    for (size_t i = 0; i < want.v.size(); ++i) {
      const double error = std::abs(got.v[i] - want.v[i]);
      if (!(error <= want.budget[i]))
        check::fail(__FILE__, __LINE__,
                    std::string(what) + " leaves its budget at " + std::to_string(i));
      used = std::max(used, error / want.budget[i]);
      distinct += want.v[i] != want.v[0];
    }
  }
  if (used < 1e-3) check::fail(__FILE__, __LINE__, std::string(what) + " has an absurd budget");
  CHECK(distinct > 0);
}

TEST(order_walks_stay_within_their_budgets) {
  for (const int64_t k : {1, 17, 129, 1024}) {
    for (const char* order : {"nk", "kn"}) {
      Scene s;
      const Shape shape = order[0] == 'n' ? Shape{5, k} : Shape{k, 5};
      const Tensor x = s.f32("x", {3, k}, random(size_t(3 * k), 1)),
                   w = s.f32("w", shape, random(size_t(5 * k), 2));
      within_budget("matmul", s, s.call(Op::matmul, {x, w}, {{"w_order", text(order)}}));
    }
    Scene s;
    const Tensor x = s.f32("x", {2, k + 1}, random(size_t(2 * k + 2), 3)),
                 g = s.f32("g", {k + 1}, random(size_t(k + 1), 4));
    within_budget("rms_norm", s, s.call(Op::rms_norm, {x, g}, {{"eps", real(1e-5)}}));
    Scene p;
    within_budget("softmax", p,
                  p.call(Op::softmax, {p.f32("x", {2, k + 1}, random(size_t(2 * k + 2), 5))}));
  }
  Scene s;
  const Tensor x = s.f32("x", {300}, random(300, 6));
  within_budget("silu", s, s.call(Op::silu, {x}));
  Scene g;
  within_budget(
      "swiglu", g,
      g.call(Op::swiglu, {g.f32("x", {300}, random(300, 7)), g.f32("y", {300}, random(300, 8))}));
}

TEST(rope_and_attention_walks_stay_within_their_budgets) {
  Scene s;
  s.scalar("base", accel::f32(10000));
  const Tensor x = s.f32("x", {4, 64}, random(256, 9)), p = s.u32("p", {4}, {1, 77, 4000, 900000});
  within_budget("rope", s,
                s.call(Op::rope, {x, p, Operand()},
                       {{"rotary_dim", integer(64)}, {"base_name", text("base")}}));
  for (const uint32_t length : {2u, 128u, 129u, 290u}) {
    Scene a;
    a.scalar("scale", accel::f32(0.25f));
    const State k = a.state("k", {300, 2, 16}, random(9600, 10)),
                v = a.state("v", {300, 2, 16}, random(9600, 11));
    const Tensor q = a.f32("q", {4, 16}, random(64, 12));
    within_budget("attention", a,
                  a.call(Op::attention,
                         {q, k, v, a.u32("len", {1}, {length}), Operand(), Operand(), Operand()},
                         {{"scale_name", text("scale")}}));
  }
}

// ---------------------------------------------------------------- refusals

TEST(missing_and_short_ports_are_named) {
  Scene s;
  const Tensor y = s.call(Op::silu, {s.f32("x", {4}, {1, 2, 3})});
  s.b.output("out", y);
  CHECK_THROWS(oracle::evaluate(s.b.finish(), s.inputs), Error, "x has 3 elements and must have 4");
  s.inputs.ports.clear();
  CHECK_THROWS(oracle::evaluate(s.b.finish(), s.inputs), Error, "x is not given");
}
