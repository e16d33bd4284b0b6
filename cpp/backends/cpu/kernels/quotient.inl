// Quotients by one divisor. With a fused multiply-add, two corrections of a product with the
// rounded inverse give the rounded quotient: the first leaves an error below one unit in the last
// place, so the next remainder is exact and the second rounds as the division does. Remainders stay
// exact while a quotient is 0 or at least 2^-102; other vectors are divided.
struct Divisor {
  F16x by, inverse, least;
  bool plain;
};
static ACCEL_INLINE Divisor divisor(float by) {
#if ACCEL_ISA_base
  const bool plain = true;
#else
  const bool plain = !(by >= 1.0f && by <= 0x1p60f);
#endif
  return {splat(by), splat(1.0f / by), splat(by * 0x1p-102f), plain};
}
static ACCEL_INLINE F16x quotient_corrected(F16x a, const Divisor& d) {
  const F16x first = a * d.inverse, minus = splat(-0.0f) - d.by;
  const F16x second = fma(fma(minus, first, a), d.inverse, first);
  return fma(fma(minus, second, a), d.inverse, second);
}
static ACCEL_INLINE F16x quotient(F16x a, const Divisor& d) {
  if (d.plain || any((a < d.least) & !(a == splat(0.0f)))) return a / d.by;
  return quotient_corrected(a, d);
}
// The same for dividends of any sign. A zero is divided, since its sign would be lost, and so is
// what is not finite.
static ACCEL_INLINE F16x quotient_signed(F16x a, const Divisor& d) {
  const I16x size = bits(a) & isplat(0x7fffffff);
  if (d.plain || any((size < bits(d.least)) | (isplat(0x7f7fffff) < size))) return a / d.by;
  return quotient_corrected(a, d);
}
