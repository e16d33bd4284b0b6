// Products on CUDA's matrix units: which calls take them and how they are launched, and that what
// the hardware is known to do lies within the bound of the order.
#include <cmath>
#include <random>

#include "base/dtype.h"
#include "graph/builder.h"
#include "ops/product_matrix.h"
#include "oracle/matrix16.h"
#include "oracle/oracle.h"
#include "shared/matrix_tiles.h"
#include "tests/check.h"

using namespace accel;

namespace {

constexpr DType F32 = DType::F32, F16 = DType::F16, BF16 = DType::BF16;

In in_of(DType dtype, const Shape& shape) {
  In in;
  in.present = true;
  in.dtype = dtype;
  in.shape = shape;
  in.strides = contiguous_strides(shape);
  return in;
}
Attr text(const char* s) {
  Attr a;
  a.set = true;
  a.s = s;
  return a;
}
Call product(int64_t m, int64_t k, int64_t n, DType x = F32, DType w = F16, Op op = Op::matmul) {
  Call c;
  c.def = &op_def(op);
  c.in = {in_of(x, {m, k}), in_of(w, {n, k})};
  if (op == Op::linear) c.in.push_back(in_of(F32, {n}));
  c.attrs.resize(c.def->attrs.size());
  c.attrs[w_order] = text("nk");
  c.results = c.def->infer(c);
  return c;
}
Limits cuda() {
  Limits limits;
  limits.backend = Backend::cuda;
  limits.group_bytes = 227 * 1024;
  limits.matrix = true;
  return limits;
}
Launch launch_of(const Call& c, const Limits& limits = cuda()) {
  const KernelRow& row = *select(c, limits, Site()).row;
  CHECK(is_matrix16(row));
  Launches out;
  row.launches(c, row, out);
  CHECK_EQ(out.list.size(), 1u);
  CHECK_EQ(out.scratch, 0);
  return out.list[0];
}
std::string launched(const Call& c) {
  const Launch l = launch_of(c);
  return l.function + " " + std::to_string(l.groups[0]) + "x" + std::to_string(l.groups[1]) + "x" +
         std::to_string(l.threads) + " " + std::to_string(l.per_unit);
}
// The chosen row, and why the one on matrix units for these dtypes is not it.
std::pair<std::string, std::string> chosen(const Call& c, const Limits& limits,
                                           const std::string& row = "matmul_matrix16_nk_f32_f16") {
  const Choice choice = select(c, limits, Site());
  for (const std::string& why : choice.rejected)
    if (why.starts_with(row + " ")) return {choice.row->kernel, why.substr(row.size() + 1)};
  return {choice.row->kernel, ""};
}
using Chosen = std::pair<std::string, std::string>;

}  // namespace

TEST(test_rows_of_matrix_units_are_asked_for_and_say_what_they_need) {
  Limits limits = cuda();
  CHECK(chosen(product(1, 64, 5), limits) == Chosen("matmul_matrix16_nk_f32_f16", ""));
  CHECK(chosen(product(1, 64, 5, F32, F16, Op::linear), limits) ==
        Chosen("matmul_matrix16_nk_f32_f16", ""));
  CHECK(chosen(product(1, 64, 5, F16, BF16), limits) ==
        Chosen("matmul_matrix16_nk_f16_bf16", "reads f32 activations"));
  CHECK(chosen(product(1, 64, 5, F32, F32), limits) ==
        Chosen("matmul_nk_f32_f32_ring", "reads an f16 weight"));
  CHECK(chosen(product(9, 56, 5), limits) == Chosen("matmul_nk_f32_f16", "needs K from 64 on"));
  CHECK(chosen(product(9, 68, 5), limits) ==
        Chosen("matmul_nk_f32_f16", "needs rows of the weight in whole 16 bytes"));
  Call kn = product(9, 64, 64);
  kn.attrs[w_order] = text("kn");
  CHECK(chosen(kn, limits) == Chosen("matmul_kn_f32_f16", "reads a weight in nk"));
  limits.group_bytes = matrix_group_bytes() - 1;
  CHECK_EQ(chosen(product(9, 64, 5), limits).second,
           "needs more memory of a group than the device has");
  limits = cuda();
  limits.matrix = false;
  CHECK(chosen(product(9, 64, 5), limits) ==
        Chosen("matmul_nk_f32_f16_ring",
               "is not asked for: open_cuda(matrix=True) asks for matrix units"));
  CHECK_EQ(chosen(product(9, 64, 5, F32, F16, Op::linear), limits).first, "matmul_nk_f32_f16_ring");
  limits.backend = Backend::cpu;
  limits.matrix = true;  // nobody else looks at it
  CHECK(chosen(product(9, 64, 5), limits) == Chosen("matmul_nk_f32_f16", ""));
}

TEST(test_rows_decide_the_tile_and_no_other_part_of_the_order) {
  CHECK_EQ(launched(product(1, 64, 33)), "matmul_matrix16_nk_f32_f16_rows1 1x3x256 2");
  CHECK_EQ(launched(product(2, 64, 33)), "matmul_matrix16_nk_f32_f16_rows8 1x3x256 2");
  CHECK_EQ(launched(product(8, 64, 33)), "matmul_matrix16_nk_f32_f16_rows8 1x3x256 2");
  CHECK_EQ(launched(product(9, 64, 33, F16)), "matmul_matrix16_nk_f16_f16_rows16 1x2x128 1");
  CHECK_EQ(launched(product(16, 64, 33)), "matmul_matrix16_nk_f32_f16_rows16 1x2x128 1");
  CHECK_EQ(launched(product(17, 64, 33)), "matmul_matrix16_nk_f32_f16_rows32 1x2x128 1");
  CHECK_EQ(launched(product(33, 64, 33)), "matmul_matrix16_nk_f32_f16_rows64 1x1x128 0");
  CHECK_EQ(launched(product(65, 64, 4096, F32, BF16)),
           "matmul_matrix16_nk_f32_bf16_rows64 2x64x128 0");
  CHECK_EQ(launched(product(512, 64, 4096, F16, BF16)),
           "matmul_matrix16_nk_f16_bf16_rows128 4x32x256 0");
  CHECK_EQ(launched(product(0, 64, 33)), "matmul_matrix16_nk_f32_f16_rows1 0x3x256 2");
  for (int64_t m = 1; m < 700; ++m) {
    const KernelRow* row = select(product(m, 64, 700), cuda(), Site()).row;
    CHECK_EQ(row, select(product(1, 64, 700), cuda(), Site()).row);
    const Launch l = launch_of(product(m, 64, 700));
    const std::string suffix = l.function.substr(l.function.rfind('_') + 1);
    for (const MatrixTile& tile : matrix_tiles())
      if (tile.suffix == suffix) {
        CHECK(int64_t(l.groups[0]) * tile.rows >= m && int64_t(l.groups[1]) * tile.columns >= 700);
        CHECK(!tile.few || l.groups[0] == 1);
      }
  }
}

// Where one tile of 128 by 128 a multiprocessor is all there is, small ones spread no better.
TEST(test_large_tiles_where_they_fill_the_device) {
  const auto tile = [](int64_t m, int64_t n) { return matrix_tile_for(m, n).suffix; };
  CHECK(tile(64, 151936) == "rows64" && tile(128, 4096) == "rows64" && tile(256, 4096) == "rows64");
  CHECK(tile(512, 4096) == "rows128" && tile(2048, 4096) == "rows128");
  CHECK(tile(512, 12288) == "rows128" && tile(100000, 64) == "rows64");
}

TEST(test_a_launch_has_the_memory_and_the_operands_of_its_kernel) {
  for (const DType x : {F32, F16})
    for (const auto& [m, n] :
         {std::pair(1, 33), {8, 33}, {16, 33}, {32, 33}, {64, 33}, {512, 4096}})
      CHECK_EQ(launch_of(product(m, 64, n, x)).group_bytes, matrix_tile_for(m, n).bytes(x));
  CHECK_EQ(launch_of(product(9, 64, 33)).group_bytes, matrix_few_bytes(16, 32, 4, 64, 5, 4, 4));
  CHECK_EQ(launch_of(product(64, 4096, 33, F16)).group_bytes,
           matrix_many_bytes(64, 64, 4, 64, 4, 3, 2));
  CHECK(matrix_group_bytes() <= 163 * 1024);  // of sm_80
  for (const MatrixTile& t : matrix_tiles())
    if (t.few)  // groups that are counted on, with the driver's KiB
      CHECK(t.warps / 4 * (std::max(t.bytes_f16, t.bytes_f32) + 1024) <= 228 * 1024);
  CHECK(launch_of(product(1, 64, 33)).operands == (std::vector<int>{0, 1, 2, 2, 2, 2, 2}));
  CHECK(launch_of(product(1, 64, 33, F16, F16, Op::linear)).operands ==
        (std::vector<int>{0, 1, 3, 3, 2, 3, 3}));
}

// ---------------------------------------------------------------- what the hardware does

namespace {

// Addends of one addition, and the bits that are kept of them behind the greatest's first.
struct Unit {
  size_t halves;
  int bits;
};
constexpr Unit kSm80 = {8, 24}, kSm90 = {16, 25};

struct Order {
  DType x, w;
  Unit unit;
  size_t chunk = 128;
  bool three() const { return x == F32; }
  bool half() const { return three() ? w == BF16 : x == w; }
  int least() const { return half() && w == F16 ? -14 : -126; }
};

int exponent_of(float v, int least) {
  int e = 0;
  std::frexp(v, &e);
  return v == 0 ? least : std::max(e - 1, least);
}

// All at once, cut off at the same place; then cut off to f32.
float add(const Order& o, float c, const float* x, const float* w, size_t n) {
  int top = exponent_of(c, -126);
  for (size_t i = 0; i < n; ++i)
    if (x[i] != 0 && w[i] != 0)
      top = std::max(top, exponent_of(x[i], o.least()) + exponent_of(w[i], o.least()));
  const int by = o.unit.bits - top;
  double sum = std::trunc(std::ldexp(double(c), by));
  for (size_t i = 0; i < n; ++i) sum += std::trunc(std::ldexp(double(x[i]) * double(w[i]), by));
  const double whole = std::ldexp(sum, -by);
  const float result = float(whole);
  return std::isfinite(result) && std::abs(result) > std::abs(whole) ? std::nextafterf(result, 0)
                                                                     : result;
}

float cut(float v, bool half) {
  uint32_t bits;
  std::memcpy(&bits, &v, 4);
  bits &= half ? 0xffff0000u : 0xffffe000u;
  std::memcpy(&v, &bits, 4);
  return v;
}

float result_of(const Order& o, const std::vector<float>& x, const std::vector<float>& w) {
  const size_t step = o.half() ? 16 : 8, apart = o.half() ? o.unit.halves : o.unit.halves / 2;
  float total = 0;
  for (size_t begin = 0; begin < x.size(); begin += o.chunk) {
    float sum = 0;
    for (size_t k = begin; k < std::min(begin + o.chunk, x.size()); k += step) {
      std::vector<std::vector<float>> terms(o.three() ? 3 : 1, std::vector<float>(step));
      std::vector<float> weights(step);
      for (size_t i = 0; i < step && k + i < x.size(); ++i) {
        weights[i] = w[k + i];
        float rest = x[k + i];
        for (size_t t = terms.size(); t-- > 0;) {
          terms[t][i] = o.three() ? cut(rest, o.half()) : rest;
          rest -= terms[t][i];
        }
      }
      for (const auto& term : terms)
        for (size_t i = 0; i < step; i += apart)
          sum = add(o, sum, term.data() + i, weights.data() + i, apart);
    }
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

float stored(DType t, float v) {
  if (t == F16) return f32_from_f16(f16_from_f32(v));
  return t == BF16 ? f32_from_bf16(bf16_from_f32(v)) : v;
}
template <class T>
std::vector<T> bits_of(const std::vector<float>& v, T (*to)(float)) {
  std::vector<T> out;
  for (const float x : v) out.push_back(to(x));
  return out;
}

// The share of the budget that a value uses, by the oracle of the order.
struct Judge {
  double value, budget, walk;
  Judge(const Order& o, const std::vector<float>& x, const std::vector<float>& w) {
    const int64_t k = int64_t(x.size());
    Builder b("product");
    const Tensor left = b.input("x", o.x, {1, k}), right = b.input("w", o.w, {1, k});
    b.output("out", Builder::record(Op::matmul, {left, right}, {{"w_order", text("nk")}},
                                    std::source_location::current())
                        .value());
    const auto x16 = bits_of(x, f16_from_f32), w16 = bits_of(w, f16_from_f32),
               wb = bits_of(w, bf16_from_f32);
    oracle::Inputs inputs;
    inputs.ports["x"] = {o.x, o.x == F32 ? static_cast<const void*>(x.data()) : x16.data(), k};
    inputs.ports["w"] = {o.w, o.w == F16 ? w16.data() : wb.data(), k};
    const Graph graph = b.finish();
    const auto by = [&](oracle::Level level) {
      return oracle::evaluate(graph, inputs,
                              {level, level == oracle::Level::f64, Backend::cuda, true, true})
          .at("out");
    };
    const oracle::Value want = by(oracle::Level::f64);
    value = want.v[0], budget = want.budget[0];
    walk = by(oracle::Level::fma).v[0];
  }
  double share(double got) const { return std::abs(got - value) / budget; }
};

// Kinds of data: any signs; one sign, so that what is cut off adds up; a great product first, and
// behind it what is just cut off whole; the same where an operand of the first is not normal;
// others below the normal numbers of the types.
enum Data { kAny, kOneSign, kCutOff, kNotNormal, kTinyX, kTinyW };

// Of kNotNormal: the first product, and the others.
struct Pieces {
  float x, w, other_x, other_w;
  explicit Pieces(const Order& o) {
    const float half = o.unit.bits == 24 ? 1 : 0.5f;
    if (o.three()) x = 0x1p-133f, w = 0x1p15f, other_x = 0x1.fep-122f, other_w = half * 0x1p-14f;
    else if (o.half()) x = 0x1p-24f, w = 0x1p15f, other_x = 0x1.fep-14f, other_w = half * 0x1p-10f;
    else x = 0x1p10f, w = 0x1p-133f, other_x = half * 0x1.fep-15f, other_w = 0x1p-126f;
  }
};

std::vector<float> x_of(Data d, const Order& o, size_t n, std::mt19937& engine) {
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& x : v) {
    x = normal(engine);
    if (d == kOneSign) x = std::abs(x);
    if (d == kCutOff) x = 0x1.fep-14f;
    if (d == kTinyX) x *= o.x == F16 ? 0x1p-20f : engine() % 2 ? 0x1p-105f : 0x1p-127f;
    x = stored(o.x, x);
  }
  if (d == kCutOff) v[0] = 1;
  if (d == kNotNormal) v.assign(n, Pieces(o).other_x), v[0] = Pieces(o).x;
  return v;
}
std::vector<float> w_of(Data d, const Order& o, size_t n, std::mt19937& engine) {
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (float& w : v) {
    w = normal(engine);
    if (d == kOneSign) w = std::abs(w);
    if (d == kCutOff) w = o.unit.bits == 24 ? 0x1p-11f : 0x1p-12f;
    if (d == kTinyW) w *= o.w == F16 ? 0x1p-20f : 0x1p-127f;
    w = stored(o.w, w);
  }
  if (d == kCutOff) v[0] = 1;
  if (d == kNotNormal) v.assign(n, Pieces(o).other_w), v[0] = Pieces(o).w;
  return v;
}

// The greatest share over all kinds of data.
double greatest(const Order& o, const std::vector<Data>& kinds, const std::vector<size_t>& sizes) {
  std::mt19937 engine(7);
  double most = 0;
  for (const Data d : kinds)
    for (const size_t k : sizes) {
      const auto x = x_of(d, o, k, engine), w = w_of(d, o, k, engine);
      const Judge judge(o, x, w);
      CHECK(judge.share(judge.walk) <= 1);
      most = std::max(most, judge.share(result_of(o, x, w)));
    }
  return most;
}
const std::vector<Data> kAll = {kAny, kOneSign, kCutOff, kNotNormal, kTinyX, kTinyW};
const std::vector<size_t> kSizes = {64, 72, 128, 136, 200, 1000, 4096};

}  // namespace

TEST(test_what_is_known_of_the_hardware_is_within_the_bound) {
  for (const Unit& unit : {kSm80, kSm90})
    for (const auto& [x, w] : {std::pair(F32, F16), {F32, BF16}, {F16, F16}, {F16, BF16}}) {
      const double most = greatest({x, w, unit}, kAll, kSizes);
      CHECK(most <= 1);
      CHECK(most > 0.1);  // nor is it far
    }
  // Of one chunk of one term nearly all may be cut off.
  CHECK(greatest({F16, F16, kSm80}, {kCutOff}, {128}) > 0.75);
}

TEST(test_the_bound_finds_another_order_and_fewer_bits) {
  CHECK(greatest({F16, F16, kSm80, 1 << 20}, {kCutOff}, {4096}) > 1);
  CHECK(greatest({F16, F16, {8, 20}}, {kCutOff, kOneSign}, {128}) > 1);
  Order plain = {F32, F16, kSm80};
  std::mt19937 engine(3);
  const auto x = x_of(kOneSign, plain, 64, engine), w = w_of(kOneSign, plain, 64, engine);
  std::vector<float> rounded = x;  // one term of TF32 in place of three
  for (float& v : rounded) v = cut(v, false);
  CHECK(Judge(plain, x, w).share(result_of(plain, rounded, w)) > 1);
}

// Sums that the instructions cannot make are made again.
TEST(test_a_result_that_is_not_finite_is_one_chain) {
  const Order o = {F32, BF16, kSm90};
  std::vector<float> x(64, 1.0f), w(64, 1.0f);
  x[3] = INFINITY;
  CHECK(Judge(o, x, w).walk == HUGE_VAL);
  x[5] = -INFINITY;
  CHECK(std::isnan(Judge(o, x, w).walk));
}

TEST(test_roundings_and_what_tiny_operands_lose) {
  using oracle::Matrix16;
  CHECK_EQ(Matrix16(F16, F16).roundings(128), 160.0);
  CHECK_EQ(Matrix16(F16, F16).roundings(4096), 191.0);
  CHECK_EQ(Matrix16(F16, BF16).roundings(128), 192.0);
  CHECK_EQ(Matrix16(F32, BF16).roundings(64), 240.0);
  CHECK_EQ(Matrix16(F32, F16).roundings(129), 577.0);
  CHECK_EQ(Matrix16(F16, F16).lost(1, 0x1p-14), 0.0);
  CHECK_EQ(Matrix16(F16, F16).lost(1, 0x1p-15), 8 * 0x1p-24 * 0x1p-14);
  CHECK_EQ(Matrix16(F16, F16).lost(0, 0x1p-15), 0.0);
  CHECK_EQ(Matrix16(F16, BF16).lost(0x1p-24, 0x1p-126), 0.0);
  CHECK(Matrix16(F32, BF16).lost(0x1p-103, 1) > 0);
  CHECK_EQ(Matrix16(F32, F16).lost(0x1p-102, 0x1p-24), 0.0);
}
