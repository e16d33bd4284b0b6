// exp of a difference to a maximum, never above 0. What is below -104 gives +0 and is not computed,
// since a product that vanishes or becomes subnormal costs more than the whole function.
static ACCEL_INLINE M16x below_plain(F16x x) {
  return splat(-87.0f) <= x;
}
static ACCEL_INLINE F16x below_rare(F16x x) {
  const M16x none = x < splat(-104.0f);
  return select(none, splat(0.0f), math_exp(select(none, splat(0.0f), x)));
}
// The same bits where all lanes are plain: 2^n is a sum of exponents, since neither factor nor
// result is subnormal. The low bits of `t` are those of n.
static ACCEL_INLINE F16x below_fast(F16x x) {
  const F16x t = math_exp_sum(x);
  return from_bits(bits(math_exp_rest(x, t)) + shl<23>(bits(t)));
}
static ACCEL_INLINE F16x exp_below(F16x x) {
  const bool plain = mask_bits(below_plain(x)) == 0xffff;
  return __builtin_expect(plain, 1) ? below_fast(x) : below_rare(x);
}
