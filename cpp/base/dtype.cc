#include "base/dtype.h"

#include <bit>
#include <cmath>

namespace accel {

const char* name_of(DType t) {
  static const char* const names[kDTypeCount] = {"f32", "f16", "bf16", "i32", "u32", "i8", "u8"};
  return names[int(t)];
}

float f32_from_f16(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, fraction = h & 0x3ff;
  if (exponent == 31) return std::bit_cast<float>(sign | 0x7f800000 | fraction << 13);
  if (exponent) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  const float v = float(fraction) * 0x1p-24f;  // subnormal or zero, exact
  return sign ? -v : v;
}

uint16_t f16_from_f64(double v) {
  if (std::isnan(v)) return 0x7e00;
  const uint16_t sign = std::signbit(v) ? 0x8000 : 0;
  const double a = std::fabs(v);
  if (a == 0) return sign;               // frexp gives it exponent 0, which is that of 0.5
  if (a >= 65520) return sign | 0x7c00;  // halfway to 2^16 and beyond
  // The spacing of f16 at a; nearbyint rounds to nearest even in the default mode.
  int e = 0;
  std::frexp(a, &e);
  const int ulp = e - 11 < -24 ? -24 : e - 11;
  const double steps = std::nearbyint(std::ldexp(a, -ulp));
  if (ulp == -24) return sign | uint16_t(steps);  // subnormal, or 1024 steps: the first normal
  // steps is in [1024, 2048]; adding it to the exponent field carries when it is 2048.
  return sign | uint16_t(((ulp + 24) << 10) + int(steps));
}

uint16_t f16_from_f32(float v) {
  return f16_from_f64(double(v));
}

uint16_t bf16_from_f32(float v) {
  if (std::isnan(v)) return 0x7fc0;
  const uint32_t u = std::bit_cast<uint32_t>(v);
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

float f32_from_bf16(uint16_t b) {
  return std::bit_cast<float>(uint32_t(b) << 16);
}

}  // namespace accel
