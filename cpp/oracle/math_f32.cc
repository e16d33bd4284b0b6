// The elementary functions of shaders/shared/math in f32 at either level: the text that the kernels
// read, over words of our own whose fma obeys the level.
#include <bit>

#include "oracle/orders.h"
#include "shared/dialect.h"

namespace accel::oracle {
namespace {

#define MATH_FN DEV
using F = float;
using I = int;
using B = bool;

thread_local Level level_now = Level::fma;

F m_const(float x) {
  return x;
}
I m_int(int x) {
  return x;
}
F m_fma(F a, F b, F c) {
  return mul_add(a, b, c, level_now);
}
I m_bits(F x) {
  return std::bit_cast<int>(x);
}
F m_from_bits(I x) {
  return std::bit_cast<float>(x);
}
F m_min(F a, F b) {
  return a < b ? a : b;
}
F m_max(F a, F b) {
  return a > b ? a : b;
}
F m_select(B c, F a, F b) {
  return c ? a : b;
}
F m_to_float(I x) {
  return float(x);
}
I m_add(I a, I b) {
  return int(unsigned(a) + unsigned(b));
}
I m_sub(I a, I b) {
  return int(unsigned(a) - unsigned(b));
}
I m_shl23(I x) {
  return int(unsigned(x) << 23);
}
I m_shl30(I x) {
  return int(unsigned(x) << 30);
}
I m_sar1(I x) {
  return x >> 1;
}
I m_sar23(I x) {
  return x >> 23;
}
// The error of a product fits f32, so either level has it exactly.
F m_mul_error(F a, F b, F p) {
  return float(double(a) * double(b) - double(p));
}

// Each uses the ones before it.
// clang-format off
#include "shared/math/exp.h"
#include "shared/math/tanh.h"
#include "shared/math/activations.h"
#include "shared/math/erf.h"
#include "shared/math/log.h"
#include "shared/math/sincos.h"
#include "shared/math/curves.h"
// clang-format on

}  // namespace

#define ACCEL_AT_LEVEL(name)               \
  float name##_f32(float x, Level level) { \
    level_now = level;                     \
    return math_##name(x);                 \
  }
ACCEL_AT_LEVEL(exp)
ACCEL_AT_LEVEL(sin)
ACCEL_AT_LEVEL(cos)
ACCEL_AT_LEVEL(tanh)
ACCEL_AT_LEVEL(silu)
ACCEL_AT_LEVEL(log)
ACCEL_AT_LEVEL(sigmoid)
ACCEL_AT_LEVEL(softplus)
ACCEL_AT_LEVEL(gelu_erf)
ACCEL_AT_LEVEL(gelu_tanh)
#undef ACCEL_AT_LEVEL

}  // namespace accel::oracle
