// The words of shaders/shared/math for sixteen lanes, and the functions themselves.
#pragma once

#define MATH_FN static ACCEL_INLINE
typedef F16x F;
typedef I16x I;
typedef M16x B;

MATH_FN F m_const(float x) {
  return splat(x);
}
MATH_FN I m_int(int x) {
  return isplat(x);
}
MATH_FN F m_fma(F a, F b, F c) {
  return fma(a, b, c);
}
MATH_FN F m_min(F a, F b) {
  return min(a, b);
}
MATH_FN F m_max(F a, F b) {
  return max(a, b);
}
MATH_FN F m_select(B c, F a, F b) {
  return select(c, a, b);
}
MATH_FN I m_bits(F x) {
  return bits(x);
}
MATH_FN F m_from_bits(I x) {
  return from_bits(x);
}
MATH_FN F m_to_float(I x) {
  return to_float(x);
}
MATH_FN I m_add(I a, I b) {
  return a + b;
}
MATH_FN I m_sub(I a, I b) {
  return a - b;
}
MATH_FN I m_shl23(I x) {
  return shl<23>(x);
}
MATH_FN I m_shl30(I x) {
  return shl<30>(x);
}
MATH_FN I m_sar1(I x) {
  return sar<1>(x);
}
MATH_FN I m_sar23(I x) {
  return sar<23>(x);
}
#if ACCEL_ISA_base
// Without a fused multiply-add the operands are cut into halves of 12 bits, whose products are
// exact.
MATH_FN F math_high_half(F a) {
  const F c = a * splat(4097.0f);
  return c - (c - a);
}
MATH_FN F m_mul_error(F a, F b, F p) {
  const F ah = math_high_half(a), al = a - ah, bh = math_high_half(b), bl = b - bh;
  return al * bl - (((p - ah * bh) - al * bh) - ah * bl);
}
#else
MATH_FN F m_mul_error(F a, F b, F p) {
  return fma(a, b, splat(0.0f) - p);
}
#endif

// Each uses the ones before it.
// clang-format off
#include "shared/math/exp.h"

#include "shared/math/tanh.h"

#include "shared/math/activations.h"
#include "shared/math/erf.h"
#include "shared/math/log.h"
#include "shared/math/sincos.h"

#include "shared/math/curves.h"
