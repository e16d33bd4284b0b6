// int8 and int4 host quantizers (CONTRACT 19): f64 arithmetic, each stored number rounded once to
// nearest even, quants taken against the scale as stored. Refuses what those formats cannot hold.
#include "runtime/quant.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace accel::quant {
namespace {

constexpr double kF16Max = 65504;

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

void require_weights(const char* op, std::span<const float> w) {
  if (w.empty()) throw attr_error(op, "w", std::string(op) + ": w is empty and must hold weights");
  for (size_t i = 0; i < w.size(); ++i)
    if (!std::isfinite(w[i]))
      throw attr_error(op, "w",
                       std::string(op) + ": w[" + std::to_string(i) + "] is " + number(w[i]) +
                           " and must be finite");
}

void require_group(const char* op, int64_t group) {
  if (group == 32 || group == 64 || group == 128) return;
  throw attr_error(
      op, "group",
      std::string(op) + ": group is " + std::to_string(group) + " and must be 32, 64 or 128");
}

void require_count(const char* op, const char* operand, size_t have, size_t want) {
  if (have == want) return;
  throw attr_error(op, operand,
                   std::string(op) + ": " + operand + " has " + std::to_string(have) +
                       " entries and must have " + std::to_string(want));
}

struct Range {
  double low, high;
};

Range range_of(std::span<const float> w) {
  Range r{w[0], w[0]};
  for (float v : w) r.low = std::min(r.low, double(v)), r.high = std::max(r.high, double(v));
  return r;
}

// The f16 nearest v, which must be finite: `what` of block b.
uint16_t stored(const char* op, const char* what, double v, size_t b, const Range& r) {
  const uint16_t bits = f16_from_f64(v);
  if (std::isfinite(f32_from_f16(bits))) return bits;
  throw attr_error(op, "w",
                   std::string(op) + ": the " + what + " of block " + std::to_string(b) + " is " +
                       number(v) + ", from weights in [" + number(r.low) + ", " + number(r.high) +
                       "], and must be at most " + number(kF16Max));
}

struct Int4Scale {
  uint16_t scale, zero;
  bool constant;
};

Int4Scale int4_scale(const Range& r, size_t b) {
  const Int4Scale constant{0, 0, true};
  auto hold_low = [&] {
    Int4Scale g = constant;
    g.zero = stored("int4_quantize", "zero", r.low, b, r);
    return g;
  };
  if (r.low == r.high) return hold_low();
  const uint16_t scale = stored("int4_quantize", "scale", (r.high - r.low) / 15, b, r);
  const double s = f32_from_f16(scale);
  if (s == 0) return hold_low();
  uint16_t zero = f16_from_f64(-r.low / s);
  if (!std::isfinite(f32_from_f16(zero))) return hold_low();
  if (zero == 0x8000) zero = 0;  // one stored form of zero
  return {scale, zero, false};
}

// Largest distance between a value and the f16 it was rounded to, from the f16: half a spacing.
double half_spacing(double rounded) {
  return std::max(std::fabs(rounded) * 0x1p-11, 0x1p-25);
}

}  // namespace

Int8Result int8_quantize(std::span<const float> w) {
  require_weights("int8_quantize", w);
  Int8Result out;
  out.quants.resize(w.size());
  out.scales.resize((w.size() + kInt8Block - 1) / kInt8Block);
  for (size_t b = 0; b < out.scales.size(); ++b) {
    const size_t begin = b * kInt8Block;
    const auto block = w.subspan(begin, std::min<size_t>(kInt8Block, w.size() - begin));
    const Range r = range_of(block);
    const double peak = std::max(std::fabs(r.low), std::fabs(r.high));
    out.scales[b] = stored("int8_quantize", "scale", peak / 127, b, r);
    const double s = f32_from_f16(out.scales[b]);
    if (s == 0) continue;
    for (size_t i = 0; i < block.size(); ++i)
      out.quants[begin + i] = int8_t(std::clamp(std::nearbyint(block[i] / s), -127.0, 127.0));
  }
  return out;
}

std::vector<float> int8_dequantize(std::span<const int8_t> quants,
                                   std::span<const uint16_t> scales) {
  if (quants.empty())
    throw attr_error("int8_dequantize", "quants",
                     "int8_dequantize: quants is empty and must hold weights");
  require_count("int8_dequantize", "scales", scales.size(),
                (quants.size() + kInt8Block - 1) / kInt8Block);
  std::vector<float> out(quants.size());
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = float(quants[i]) * f32_from_f16(scales[i / kInt8Block]);
  return out;
}

double int8_bound(std::span<const float> x, std::span<const float> scales) {
  require_count("int8_bound", "scales", scales.size(), x.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) sum += std::fabs(double(x[i])) * scales[i] / 2;
  return sum;
}

Int4Result int4_quantize(std::span<const float> w, int64_t group) {
  require_group("int4_quantize", group);
  require_weights("int4_quantize", w);
  Int4Result out;
  out.codes.resize((w.size() + 7) / 8);
  out.scales.resize((w.size() + size_t(group) - 1) / size_t(group));
  out.zeros.resize(out.scales.size());
  for (size_t b = 0; b < out.scales.size(); ++b) {
    const size_t begin = b * size_t(group);
    const auto block = w.subspan(begin, std::min<size_t>(size_t(group), w.size() - begin));
    const Int4Scale g = int4_scale(range_of(block), b);
    out.scales[b] = g.scale, out.zeros[b] = g.zero;
    if (g.constant) continue;
    const double s = f32_from_f16(g.scale), z = f32_from_f16(g.zero);
    for (size_t i = 0; i < block.size(); ++i) {
      const auto q = uint32_t(std::clamp(std::nearbyint(block[i] / s + z), 0.0, 15.0));
      out.codes[(begin + i) / 8] |= q << (4 * ((begin + i) % 8));
    }
  }
  return out;
}

std::vector<float> int4_dequantize(std::span<const uint32_t> codes,
                                   std::span<const uint16_t> scales,
                                   std::span<const uint16_t> zeros, int64_t weights,
                                   int64_t group) {
  const char* const op = "int4_dequantize";
  require_group(op, group);
  if (weights <= 0)
    throw attr_error(
        op, "weights",
        std::string(op) + ": weights is " + std::to_string(weights) + " and must be positive");
  const size_t n = size_t(weights), groups = (n + size_t(group) - 1) / size_t(group);
  require_count(op, "codes", codes.size(), (n + 7) / 8);
  require_count(op, "scales", scales.size(), groups);
  require_count(op, "zeros", zeros.size(), groups);
  std::vector<float> out(n);
  for (size_t i = 0; i < n; ++i) {
    const float s = f32_from_f16(scales[i / size_t(group)]),
                z = f32_from_f16(zeros[i / size_t(group)]);
    const float q = float((codes[i / 8] >> (4 * (i % 8))) & 15);
    // Two f32 roundings, as in the kernels, so that a product over this array gives their bits.
    out[i] = s == 0 ? z : (q - z) * s;
  }
  return out;
}

// What one weight can be off by, from the stored s and z (spec 006 section 2).
// A quant that was not clamped is at most s/2 away. One that was is off by what rounding s and z
// moved the ends of the range: 15 half spacings of s, and s half spacings of z. A constant group
// holds f16(low): half a spacing of z, plus the range, 15 steps of a scale that was stored as zero
// or was so small beside |low| that the zero point overflowed.
double int4_bound(std::span<const float> x, std::span<const float> scales,
                  std::span<const float> zeros) {
  require_count("int4_bound", "scales", scales.size(), x.size());
  require_count("int4_bound", "zeros", zeros.size(), x.size());
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double s = scales[i], z = zeros[i];
    const double step = s == 0 ? (std::fabs(z) + half_spacing(z)) / kF16Max : s;
    const double moved = 15 * half_spacing(step) + (s == 0 ? 1 : s) * half_spacing(z);
    const double off = moved + (s == 0 ? 15 * step : s / 2);
    sum += std::fabs(double(x[i])) * off;
  }
  return sum;
}

}  // namespace accel::quant
