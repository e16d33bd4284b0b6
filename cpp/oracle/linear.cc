// causal_conv1d and linear_attention: sequences with a slot of state each (CONTRACT 16, E7).
#include <algorithm>
#include <functional>

#include "oracle/node.h"
#include "oracle/orders.h"

namespace accel::oracle {

// Each sequence's rows [begin, end), whatever the extents add up to.
static void each_sequence(std::span<const double> extents, int64_t rows,
                          const std::function<void(size_t, int64_t, int64_t)>& f) {
  int64_t begin = 0;
  for (size_t b = 0; b < extents.size(); ++b) {
    const int64_t end = std::min(begin + int64_t(extents[b]), rows);
    f(b, begin, end);
    begin = end;
  }
}

void eval_causal_conv1d(Args& a) {
  const auto x = a.operand("x"), w = a.operand("w"), bias = a.operand("bias");
  const int64_t rows = a.type("x").shape[0], C = a.type("x").shape[1], W = a.type("w").shape[1];
  each_sequence(a.operand("query_extents"), rows, [&](size_t b, int64_t begin, int64_t end) {
    const std::span<double> slot = a.written.subspan(b * size_t((W - 1) * C), size_t((W - 1) * C));
    std::vector<float> z(slot.begin(), slot.end());
    z.insert(z.end(), x.begin() + begin * C, x.begin() + end * C);
    const int64_t tokens = end - begin;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t c = 0; c < C; ++c) {
        float sum = float(w[size_t(c * W)]) * z[size_t(t * C + c)];
        for (int64_t j = 1; j < W; ++j) {
          const float product = float(w[size_t(c * W + j)]) * z[size_t((t + j) * C + c)];
          sum = sum + product;
        }
        if (!bias.empty()) sum = sum + float(bias[size_t(c)]);
        a.out[0][size_t((begin + t) * C + c)] = double(sum);
      }
    std::copy(z.end() - (W - 1) * C, z.end(), slot.begin());
  });
}

// ---------------------------------------------------------------- linear attention

namespace {

// One head of one token, and the S [Dv, Dk] that it updates.
struct Head {
  std::span<const double> q, k, v;
  std::vector<double> alpha;  // by key
  double beta;
  bool decay_first, add;
  std::span<double> S, moved;  // values and what their f32 form may be off by; moved may be empty
  size_t out;                  // first of the Dv results
};

// An error times a factor; one that admits everything still does.
double scaled(double error, double by) {
  return std::isinf(error) ? error : error * std::abs(by);
}

// The sum over the keys of value[b] * x[b], each value off by error[b] at most.
struct Sum {
  double value = 0, magnitude = 0, error = 0;
  Sum(std::span<const double> values, std::span<const double> errors, std::span<const double> x) {
    for (size_t b = 0; b < x.size(); ++b) {
      const double off = errors.empty() ? 0 : errors[b];
      value += values[b] * x[b];
      magnitude += (std::abs(values[b]) + off) * std::abs(x[b]);
      error += scaled(off, x[b]);
    }
    const double n = double(x.size());
    error += gamma(depth_of("lane16", n) + 1) * magnitude + n * kTiny;
    error = unless_overflow(magnitude, error * 1.0001);
  }
};

}  // namespace

// One row of S. Each operation adds its rounding to what its operands may be off by (specs 007).
static void f64_row(Args& a, const Head& h, size_t row) {
  const size_t keys = h.k.size();
  const std::span<double> s = h.S.subspan(row * keys, keys);
  std::vector<double> none(keys, 0.0);
  const std::span<double> e =
      h.moved.empty() ? std::span<double>(none) : h.moved.subspan(row * keys, keys);
  const Sum before(s, e, h.k);
  for (size_t b = 0; b < keys; ++b) {
    s[b] *= h.alpha[b];
    e[b] = scaled(e[b], h.alpha[b]);
    if (h.alpha[b] != 1) e[b] += kU * (std::abs(s[b]) + e[b]) + kTiny;
    e[b] = unless_overflow(std::abs(s[b]) + e[b], e[b]);
  }
  if (h.beta != 0) {
    const Sum after(s, e, h.k);
    const Sum& u = h.decay_first ? after : before;
    const double difference = h.add ? h.v[row] : h.v[row] - u.value;
    double off = h.add ? 0 : u.error + kU * (std::abs(difference) + u.error);
    const double change = h.beta * difference;
    off = scaled(off, h.beta);
    off += kU * (std::abs(change) + off) + kTiny;
    off = unless_overflow(std::max(std::abs(change), std::abs(difference)) + off, off);
    for (size_t b = 0; b < keys; ++b) {
      const double product = change * h.k[b], moved = scaled(off, h.k[b]);
      s[b] += product;
      e[b] += moved + kU * (std::abs(product) + moved) + kTiny;
      e[b] += kU * (std::abs(s[b]) + e[b]);
      e[b] = unless_overflow(std::abs(s[b]) + std::abs(product) + e[b], e[b]);
    }
  }
  const Sum out(s, e, h.q);
  a.out[0][h.out + row] = out.value;
  if (a.budgets) a.budget[0][h.out + row] = out.error;
}

static void f32_row(Args& a, const Head& h, size_t row) {
  const size_t keys = h.k.size();
  const std::span<double> state = h.S.subspan(row * keys, keys);
  std::vector<float> s(state.begin(), state.end());
  const std::vector<float> k(h.k.begin(), h.k.end()), q(h.q.begin(), h.q.end());
  const float beta = float(h.beta), before = dot("lane16", a.level, k, s);
  for (size_t b = 0; b < keys; ++b) s[b] = float(h.alpha[b]) * s[b];
  if (beta != 0) {
    const float u = h.decay_first ? dot("lane16", a.level, k, s) : before;
    const float difference = h.add ? float(h.v[row]) : float(h.v[row]) - u;
    const float change = beta * difference;
    for (size_t b = 0; b < keys; ++b) s[b] = mul_add(change, k[b], s[b], a.level);
  }
  a.out[0][h.out + row] = double(dot("lane16", a.level, q, s));
  std::copy(s.begin(), s.end(), state.begin());
}

// alpha of every key, whatever the layout of the gates.
static std::vector<double> decays(const Args& a, size_t token, size_t head, size_t keys) {
  const auto alpha = a.operand("alpha");
  const Shape& shape = a.type("alpha").shape;
  if (shape.rank() == 3) {
    const auto own = alpha.subspan((token * size_t(shape[1]) + head) * keys, keys);
    return {own.begin(), own.end()};
  }
  const size_t wide = shape.rank() == 1 ? 1 : size_t(shape[1]);
  return std::vector<double>(keys, alpha[token * wide + (wide > 1 ? head : 0)]);
}

void eval_linear_attention(Args& a) {
  const Shape &keys = a.type("k").shape, &values = a.type("v").shape, &gate = a.type("beta").shape;
  const size_t H = size_t(keys[1]), Dk = size_t(keys[2]), Dv = size_t(values[2]);
  const size_t wide = gate.rank() == 1 ? 1 : size_t(gate[1]);
  const auto row_of = [](std::span<const double> v, size_t row, size_t n) {
    return v.subspan(row * n, n);
  };
  each_sequence(a.operand("query_extents"), keys[0], [&](size_t b, int64_t begin, int64_t end) {
    for (size_t t = size_t(begin); t < size_t(end); ++t)
      for (size_t h = 0; h < H; ++h) {
        Head head;
        head.q = row_of(a.operand("q"), t * H + h, Dk);
        head.k = row_of(a.operand("k"), t * H + h, Dk);
        head.v = row_of(a.operand("v"), t * H + h, Dv);
        head.alpha = decays(a, t, h, Dk);
        head.beta = a.operand("beta")[t * wide + (wide > 1 ? h : 0)];
        head.decay_first = a.attribute("decay_first").b;
        head.add = a.attribute("rule").s == "add";
        head.S = a.written.subspan((b * H + h) * Dv * Dk, Dv * Dk);
        if (a.budgets) head.moved = a.written_budget.subspan((b * H + h) * Dv * Dk, Dv * Dk);
        head.out = (t * H + h) * Dv;
        for (size_t row = 0; row < Dv; ++row)
          a.level == Level::f64 ? f64_row(a, head, row) : f32_row(a, head, row);
      }
  });
}

}  // namespace accel::oracle
