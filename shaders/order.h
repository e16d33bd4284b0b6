// Decisions about floats by their bits. A device may flush subnormals wherever it computes or
// compares floats; bits that are only moved stay, so these decide everywhere as the CPU does.
#pragma once
#include "kernel.h"

// Grows with the value; -0 has the key of +0, and NaN the least of all, which no number has.
static inline u32 key_of(float x) {
  const u32 whole = as_type<u32>(x), bits = whole == 0x80000000u ? 0 : whole;
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
// Tripled, -0 alone stays as it is. Of bits without their sign, compared with 0, compilers make a
// comparison of floats again.
static inline bool is_zero(float x) {
  const u32 bits = as_type<u32>(x);
  return bits == 0 || bits * 3 == 0x80000000u;
}
// Whether a * b is above +0 where nothing is flushed: above 2^-150, which rounds to 0. False for
// what is negative or NaN.
static inline bool is_product_above_zero(float a, float b) {
  const u32 x = as_type<u32>(a), y = as_type<u32>(b);
  if (x == 0 || y == 0 || x > 0x7f800000u || y > 0x7f800000u) return false;
  const ulong m =
      ulong(x >> 23 ? (x & 0x7fffff) | 0x800000 : x) * (y >> 23 ? (y & 0x7fffff) | 0x800000 : y);
  const int shift = 150 - int(max(x >> 23, 1u) + max(y >> 23, 1u));
  return shift < 0 || (shift < 48 && m > ulong(1) << shift);
}
// Above 0 and below `end`, which is above 0.
static inline bool is_inside(float x, float end) {
  return as_type<u32>(x) != 0 && as_type<u32>(x) < as_type<u32>(end);
}
