// What the loops of the matrix products share: a weight by its flat index, the product of a run of
// rows, int4 planes.
#pragma once
#include <algorithm>
#include <functional>

#include "oracle/node.h"
#include "oracle/orders.h"

namespace accel::oracle {

// One weight: its value, and what its f32 form may be off by.
struct Weight {
  double value;
  double error;
};
using WeightAt = std::function<Weight(int64_t flat)>;

struct Product {
  int64_t M, K, N;
  bool nk;
  int64_t row = 0;   // the first of the M rows of x and of the result
  int64_t base = 0;  // flat index of the first weight
  int64_t flat(int64_t k, int64_t n) const { return base + (nk ? n * K + k : k * N + n); }
};

// What a product of narrow operands does to its activations (CONTRACT E13).
struct Narrow {
  std::string_view type;  // empty: nothing
  float operator()(double x) const {
    const float v = float(x);
    if (type == "f16") return f32_from_f16(f16_from_f32(v));
    return type == "bf16" ? f32_from_bf16(bf16_from_f32(v)) : v;
  }
  // Half a unit in the last place; anything where the value leaves the type.
  double error(double x) const {
    const double v = std::abs(x);
    if (type == "f16") return v >= 65520 ? HUGE_VAL : std::max(v * 0x1p-11, 0x1p-25);
    if (type == "bf16") return v >= 0x1.ffp127 ? HUGE_VAL : std::max(v * 0x1p-8, 0x1p-134);
    return 0;
  }
};

// A weight as groups see it: scale * code + offset, the offset as f32 and before its rounding.
struct Int8Weight {
  int64_t group;
  bool offsets;
  std::function<int(int64_t)> code;       // by flat index
  std::function<double(int64_t)> scale;   // by flat group
  std::function<double(int64_t)> offset;  // unrounded
  std::function<double(int64_t)> value;   // by flat index
};

// Rows of a.out[0], an empty bias being none: within a budget, and by the registered order.
void f64_products(Args& a, const Product& p, std::span<const double> x, const WeightAt& weight,
                  std::span<const double> bias, const Narrow& narrow = {});
void f32_products(Args& a, const Product& p, std::span<const double> x,
                  const std::function<float(int64_t)>& weight, std::span<const double> bias,
                  const Narrow& narrow = {});
// The same over activations rounded to int8, the weight in nk.
void int8_products(Args& a, const Product& p, std::span<const double> x, const Int8Weight& w,
                   std::span<const double> bias = {});
// A weight of int8 blocks.
Int8Weight int8_blocks(std::span<const double> quants, std::span<const double> scales);

struct Int4Planes {
  std::span<const double> codes, scales, offsets;
  bool zeros;
  int64_t group;
  double code(int64_t i) const {
    return double((as_u32(codes[size_t(i / 8)]) >> (4 * (i % 8))) & 15u);
  }
  double scale(int64_t i) const { return scales[size_t(i / group)]; }
  double offset(int64_t i) const { return offsets[size_t(i / group)]; }

  // The offset in scale * code + offset: -z * s of a zero point, z where s is 0.
  double bias(int64_t g) const {
    const double s = scales[size_t(g)], o = offsets[size_t(g)];
    return !zeros || s == 0 ? o : -o * s;
  }

  Weight value(int64_t i) const {
    const double c = code(i), s = scale(i), o = offset(i);
    if (!zeros) return {s * c + o, kU * (std::abs(s * c) + std::abs(s * c + o)) + kTiny};
    if (s == 0) return {o, 0};
    return {(c - o) * s, 2 * kU * std::abs((c - o) * s) * (1 + kU) + kTiny};
  }
  float rounded(int64_t i, Level level) const {
    const float c = float(code(i)), s = float(scale(i)), o = float(offset(i));
    if (!zeros) return mul_add(s, c, o, level);
    return s == 0 ? o : (c - o) * s;
  }
};
Int4Planes int4_planes(const Args& a);  // of operand w
Int8Weight int4_groups(const Int4Planes& planes);

}  // namespace accel::oracle
