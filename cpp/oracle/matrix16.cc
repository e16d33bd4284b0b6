#include "oracle/matrix16.h"

namespace accel::oracle {

static constexpr double kChunk = 128, kStep = 16;

// bf16 and TF32 have the exponents of f32. A product of f16 x by bf16 w is one of TF32.
Matrix16::Matrix16(DType x, DType w)
    : three(x == DType::F32),
      half(three ? w == DType::BF16 : x == w),
      least(half && w == DType::F16 ? 0x1p-14 : 0x1p-126),
      least_x(three ? 0x1p-102 : least) {}

// The hardware adds L products and an f32 at once: addends are aligned to the greatest and cut off
// behind F bits, the sum is cut off to f32. With L = 8, F = 24 (sm_80) and L = 16, F = 25 (sm_90,
// sm_100) the addends that are cut lose 8u of the greatest; of TF32 with half as many 4u. The sum
// loses 2u. sm_80 takes two additions for an instruction.
double Matrix16::roundings(double K) const {
  const double steps = std::ceil(std::min(K, kChunk) / kStep), terms = three ? 3 : 1;
  const double each = half ? 2 * (8 + 2) : 4 * (4 + 2);
  return steps * terms * each + std::ceil(K / kChunk) - 1;
}

// Subnormal operands are not normalized: their products are aligned by the least exponent. What
// the third term of a tiny x does not hold is below 2^-133.
double Matrix16::lost(double x, double w) const {
  x = std::abs(x), w = std::abs(w);
  if (x == 0 || w == 0 || (x >= least_x && w >= least)) return 0;
  const double aligned = 8 * kU * std::max(x, least) * std::max(w, least);
  return three ? 3 * aligned + (x < least_x ? 0x1p-133 * w : 0) : aligned;
}

}  // namespace accel::oracle
