// The words of shaders/shared/math for one f32: F a value, I its integer twin, B a truth value.
// Include it before the functions, in a namespace of your own where other words F, I, B exist.
#pragma once
#include "shared/dialect.h"

#define MATH_FN DEV
typedef float F;
typedef int I;
typedef bool B;

MATH_FN F m_const(float x) {
  return x;
}
MATH_FN I m_int(int x) {
  return x;
}
#if defined(__METAL_VERSION__)
MATH_FN F m_fma(F a, F b, F c) {
  return metal::fma(a, b, c);
}
MATH_FN I m_bits(F x) {
  return as_type<int>(x);
}
MATH_FN F m_from_bits(I x) {
  return as_type<float>(x);
}
#elif defined(__CUDACC__)
MATH_FN F m_fma(F a, F b, F c) {
  return __fmaf_rn(a, b, c);
}
MATH_FN I m_bits(F x) {
  return __float_as_int(x);
}
MATH_FN F m_from_bits(I x) {
  return __int_as_float(x);
}
#else
MATH_FN F m_fma(F a, F b, F c) {
  return __builtin_fmaf(a, b, c);
}
MATH_FN I m_bits(F x) {
  return __builtin_bit_cast(int, x);
}
MATH_FN F m_from_bits(I x) {
  return __builtin_bit_cast(float, x);
}
#endif
MATH_FN F m_min(F a, F b) {
  return a < b ? a : b;
}
MATH_FN F m_max(F a, F b) {
  return a > b ? a : b;
}
MATH_FN F m_select(B c, F a, F b) {
  return c ? a : b;
}
MATH_FN F m_to_float(I x) {
  return (float)x;
}
// Integers wrap; shifts of negative numbers keep the sign to the right and are taken on the bits to
// the left.
MATH_FN I m_add(I a, I b) {
  return (int)((unsigned)a + (unsigned)b);
}
MATH_FN I m_sub(I a, I b) {
  return (int)((unsigned)a - (unsigned)b);
}
MATH_FN I m_shl23(I x) {
  return (int)((unsigned)x << 23);
}
MATH_FN I m_shl30(I x) {
  return (int)((unsigned)x << 30);
}
MATH_FN I m_sar1(I x) {
  return x >> 1;
}
MATH_FN I m_sar23(I x) {
  return x >> 23;
}
// What the product p = a * b lost to rounding, exact while nothing underflows.
MATH_FN F m_mul_error(F a, F b, F p) {
  return m_fma(a, b, -p);
}
