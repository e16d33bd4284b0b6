// matmul, linear, quant_matmul, int4_matvec, int4_matmul in both weight orders (CONTRACT 12, 13, E1
// to E3).
#include <algorithm>

#include "oracle/matrix16.h"
#include "oracle/products.h"

namespace accel::oracle {

void f64_products(Args& a, const Product& p, std::span<const double> x, const WeightAt& weight,
                  std::span<const double> bias, const Narrow& narrow) {
  const bool units = a.order() == "matrix16";
  const Matrix16 matrix(a.call.in[0].dtype, a.call.in[1].dtype);
  const double K = double(p.K);
  const double rounding = gamma(units ? matrix.roundings(K) : depth_of(a.order(), K) + 1);
  const double tiny = units ? Matrix16::tiny(K) : K * kTiny;
  for (int64_t m = p.row; m < p.row + p.M; ++m)
    for (int64_t n = 0; n < p.N; ++n) {
      double sum = 0, gross = 0, moved = 0;
      for (int64_t k = 0; k < p.K; ++k) {
        const Weight w = weight(p.flat(k, n));
        const double xk = x[size_t(m * p.K + k)];
        sum += xk * w.value;
        gross += std::abs(xk * w.value);
        moved += std::abs(xk) * w.error;
        const double e = narrow.error(xk);
        moved += std::isinf(e) ? e : e * (std::abs(w.value) + w.error);
        if (units) moved += matrix.lost(xk, w.value);
      }
      double budget = (rounding * (gross + moved) + moved) * 1.0001 + tiny;
      if (!bias.empty()) {
        sum += bias[size_t(n)];
        gross += std::abs(bias[size_t(n)]);
        budget += kU * (std::abs(sum) + budget);
      }
      a.out[0][size_t(m * p.N + n)] = sum;
      if (a.budgets) a.budget[0][size_t(m * p.N + n)] = unless_overflow(gross * (1 + 1e-4), budget);
    }
}

void f32_products(Args& a, const Product& p, std::span<const double> x,
                  const std::function<float(int64_t)>& weight, std::span<const double> bias,
                  const Narrow& narrow) {
  std::vector<float> row(static_cast<size_t>(p.K)), column(static_cast<size_t>(p.K));
  const std::string_view order = a.order();
  for (int64_t n = 0; n < p.N; ++n) {
    for (int64_t k = 0; k < p.K; ++k) column[size_t(k)] = weight(p.flat(k, n));
    for (int64_t m = p.row; m < p.row + p.M; ++m) {
      for (int64_t k = 0; k < p.K; ++k) row[size_t(k)] = narrow(x[size_t(m * p.K + k)]);
      float sum = dot(order, a.level, row, column);
      if (!bias.empty()) sum += float(bias[size_t(n)]);
      a.out[0][size_t(m * p.N + n)] = double(sum);
    }
  }
}

static bool is_nk(const Args& a) {
  return a.attribute("w_order").s == "nk";
}

// ---------------------------------------------------------------- float weights

static void float_product(Args& a, std::span<const double> bias) {
  const auto x = a.operand("x"), w = a.operand("w");
  const Shape& xs = a.type("x").shape;
  const Shape& ws = a.type("w").shape;
  const bool nk = is_nk(a);
  const Product p{xs[0], xs[1], nk ? ws[0] : ws[1], nk};
  if (a.level == Level::f64)
    f64_products(
        a, p, x,
        [&](int64_t i) {
          return Weight{w[size_t(i)], 0};
        },
        bias);
  else
    f32_products(
        a, p, x, [&](int64_t i) { return float(w[size_t(i)]); }, bias);
}

void eval_matmul(Args& a) {
  float_product(a, {});
}
void eval_linear(Args& a) {
  float_product(a, a.operand("bias"));
}

// ---------------------------------------------------------------- activations in int8 (E11)

namespace {

// One block of an activation row.
struct Block {
  float scale = 0;
  std::vector<int> q;
  bool special = false;  // holds NaN or an infinity: so is every result
};

Block rounded_block(std::span<const double> x) {
  Block b;
  b.q.assign(x.size(), 0);
  float most = 0;
  for (double v : x) {
    b.special |= !std::isfinite(v);
    most = std::max(most, std::abs(float(v)));
  }
  if (b.special) return b;
  b.scale = most / 127.0f;
  for (size_t i = 0; i < x.size() && b.scale != 0; ++i)
    b.q[i] = int(std::clamp(std::nearbyint(float(x[i]) / b.scale), -127.0f, 127.0f));
  return b;
}

struct Sums {
  int64_t product = 0, plain = 0;  // of q * code and of q, exact
};
Sums sums_of(const Block& b, const Int8Weight& w, int64_t first) {
  Sums s;
  for (size_t i = 0; i < b.q.size(); ++i) {
    s.product += b.q[i] * w.code(first + int64_t(i));
    s.plain += b.q[i];
  }
  return s;
}

float int8_walk(const std::vector<Block>& row, const Int8Weight& w, int64_t flat, Level level) {
  float acc = 0;
  for (size_t g = 0; g < row.size(); ++g) {
    const int64_t first = flat + int64_t(g) * w.group;
    const float step = row[g].special ? NAN : row[g].scale;
    const Sums s = sums_of(row[g], w, first);
    acc = mul_add(float(w.scale(first / w.group)) * step, float(s.product), acc, level);
    if (!w.offsets) continue;
    acc = mul_add(float(w.offset(first / w.group)), step * float(s.plain), acc, level);
  }
  return acc;
}

// Against the product of the activations as they are: half a step an element, and 256u of a step
// for the two roundings before it (the quotient is at most 127); where a step falls among the
// subnormals it is off by half of one, 127 times over. Then the f32 arithmetic of the groups.
void int8_f64(Args& a, size_t at, std::span<const double> x, const std::vector<Block>& row,
              const Int8Weight& w, int64_t flat, const double* bias) {
  double sum = 0, gross = 0, budget = 0, lost = 0;
  for (size_t g = 0; g < row.size(); ++g) {
    const int64_t first = flat + int64_t(g) * w.group;
    const double step = double(row[g].scale), scale = w.scale(first / w.group);
    const double offset = w.offsets ? w.offset(first / w.group) : 0;
    if (row[g].special) sum = std::nan("");
    for (int64_t i = 0; i < w.group; ++i) {
      const double weight = w.value(first + i);
      sum += x[size_t(int64_t(g) * w.group + i)] * weight;
      budget += std::abs(weight) * (step * (0.5 + 256 * kU) + 64 * kTiny);
    }
    const Sums s = sums_of(row[g], w, first);
    const double product = std::abs(double(s.product)), plain = std::abs(double(s.plain));
    gross += std::abs(scale) * step * product + std::abs(offset) * step * plain;
    lost += kTiny * (product + plain * step + std::abs(offset) + 4);
  }
  budget = (budget + gamma(2 * double(row.size()) + 4) * gross + lost) * 1.0001;
  if (bias) {
    sum += *bias;
    gross += std::abs(*bias);
    budget += kU * (std::abs(sum) + budget);
  }
  a.out[0][at] = sum;
  if (a.budgets) a.budget[0][at] = unless_overflow(gross * (1 + 1e-4), budget);
}

}  // namespace

void int8_products(Args& a, const Product& p, std::span<const double> x, const Int8Weight& w,
                   std::span<const double> bias) {
  for (int64_t m = p.row; m < p.row + p.M; ++m) {
    const auto row = x.subspan(size_t(m * p.K), size_t(p.K));
    std::vector<Block> blocks;
    for (int64_t k = 0; k < p.K; k += w.group)
      blocks.push_back(rounded_block(row.subspan(size_t(k), size_t(w.group))));
    for (int64_t n = 0; n < p.N; ++n) {
      const size_t at = size_t(m * p.N + n);
      const int64_t first = p.flat(0, n);
      const double* own = bias.empty() ? nullptr : &bias[size_t(n)];
      if (a.level == Level::f64) {
        int8_f64(a, at, row, blocks, w, first, own);
        continue;
      }
      const float sum = int8_walk(blocks, w, first, a.level);
      a.out[0][at] = double(own ? sum + float(*own) : sum);
    }
  }
}

// ---------------------------------------------------------------- int8 blocks

Int8Weight int8_blocks(std::span<const double> q, std::span<const double> s) {
  return {32,
          false,
          [=](int64_t i) { return int(q[size_t(i)]); },
          [=](int64_t g) { return s[size_t(g)]; },
          {},
          [=](int64_t i) { return q[size_t(i)] * s[size_t(i / 32)]; }};
}

void eval_quant_matmul(Args& a) {
  const auto x = a.operand("x"), q = a.operand("w.quants"), s = a.operand("w.scales");
  const Shape& xs = a.type("x").shape;
  const Shape& ws = a.type("w.quants").shape;
  const bool nk = is_nk(a);
  const Product p{xs[0], xs[1], nk ? ws[0] : ws[1], nk};
  // 8 bits times 11 bits: the dequantized weight is exact in f32.
  const auto value = [&](int64_t i) { return q[size_t(i)] * s[size_t(i / 32)]; };
  const Narrow narrow{a.attribute("activations").s};
  if (narrow.type == "int8") int8_products(a, p, x, int8_blocks(q, s));
  else if (a.level == Level::f64)
    f64_products(
        a, p, x,
        [&](int64_t i) {
          return Weight{value(i), 0};
        },
        {}, narrow);
  else
    f32_products(
        a, p, x, [&](int64_t i) { return float(value(i)); }, {}, narrow);
}

// ---------------------------------------------------------------- int4 groups

Int4Planes int4_planes(const Args& a) {
  const bool zeros = a.has("w.zeros");
  return {a.operand("w.codes"), a.operand("w.scales"), a.operand(zeros ? "w.zeros" : "w.biases"),
          zeros, a.call.group};
}

Int8Weight int4_groups(const Int4Planes& planes) {
  return {planes.group,
          true,
          [=](int64_t i) { return int(planes.code(i)); },
          [=](int64_t g) { return planes.scales[size_t(g)]; },
          [=](int64_t g) { return planes.bias(g); },
          [=](int64_t i) { return planes.value(i).value; }};
}

static void int4_product(Args& a, int64_t M) {
  const Int4Planes planes = int4_planes(a);
  const int64_t K = a.type("a").shape.back();
  const Product p{M, K, a.call.weights / K, is_nk(a)};
  const Narrow narrow{a.attribute("activations").s};
  const auto x = a.operand("a");
  if (narrow.type == "int8") int8_products(a, p, x, int4_groups(planes));
  else if (a.level == Level::f64)
    f64_products(
        a, p, x, [&](int64_t i) { return planes.value(i); }, {}, narrow);
  else
    f32_products(
        a, p, x, [&](int64_t i) { return planes.rounded(i, a.level); }, {}, narrow);
}

void eval_int4_matvec(Args& a) {
  int4_product(a, 1);
}
void eval_int4_matmul(Args& a) {
  int4_product(a, a.type("a").shape[0]);
}

}  // namespace accel::oracle
