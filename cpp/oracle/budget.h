// Error budgets from first principles: unit roundoff, gamma(n), ceilings of the elementary
// functions (specs 007).
#pragma once
#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

namespace accel::oracle {

inline constexpr double kU = 0x1p-24;      // half a unit in the last place of f32, relative
inline constexpr double kTiny = 0x1p-149;  // one subnormal step: a store below the normal range
inline constexpr double kMaxF32 = 0x1.fffffep127;
inline constexpr double kExp = 8 * kU;      // 4 ULP, an ULP being at most 2u of the value
inline constexpr double kLog = 8 * kU;      // 4 ULP, log1p as well
inline constexpr double kTanh = 8 * kU;     // 4 ULP
inline constexpr double kErf = 0x1p-22;     // absolute
inline constexpr double kDivide = 5 * kU;   // 2.5 ULP
inline constexpr double kRsqrt = 8 * kU;    // 4 ULP
inline constexpr double kSinCos = 0x1p-20;  // absolute, |angle| <= 2^20

inline double gamma(double n) {
  const double nu = n * kU;
  return nu < 0.5 ? nu / (1 - nu) : std::numeric_limits<double>::infinity();
}

// Additions that one term can pass through in a registered order over n terms. 0 terms need none.
double depth_of(std::string_view order, double n);

// The store of an f16 result: half a unit in the last place, 2^-25 among its subnormals; from 65520
// on it is infinite.
inline void store_f16(double& value, double& budget) {
  const double widest = std::abs(value) + budget;
  budget += std::max(widest * 0x1p-11, 0x1p-25);
  if (std::abs(value) - budget >= 65520) value = std::copysign(HUGE_VAL, value);
  else if (widest >= 65520) budget = std::numeric_limits<double>::infinity();
}

// The store of an f32 result that may overflow: from half a unit past the largest on it is
// infinite.
inline void store_f32(double& value, double& budget) {
  constexpr double kOverflow = 0x1.ffffffp127;
  const double widest = std::abs(value) + budget;
  if (std::abs(value) - budget >= kOverflow) value = std::copysign(HUGE_VAL, value);
  else if (widest >= kOverflow) budget = std::numeric_limits<double>::infinity();
}

// A budget that admits everything where f32 overflows on the way.
inline double unless_overflow(double magnitude, double budget) {
  return magnitude > kMaxF32 ? std::numeric_limits<double>::infinity() : budget;
}

}  // namespace accel::oracle
