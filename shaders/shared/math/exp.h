// exp(x): n = round(x / ln 2), a polynomial on the rest, then two exact powers of two whose product
// is 2^n, so that subnormal results are rounded once. Overflow gives inf, exp(0) is 1. No include
// guard: a text for scalar and vector.

// 2^n for n in [-126, 127].
MATH_FN F math_pow2(I n) {
  return m_from_bits(m_shl23(m_add(n, m_int(127))));
}

// The sum whose low bits are the nearest integer to c / ln 2, and that integer.
MATH_FN F math_exp_sum(F c) {
  return m_fma(c, m_const(0x1.715476p+0f), m_const(12582912.0f));  // 1.5 * 2^23
}
MATH_FN I math_exp_whole(F t) {
  return m_sub(m_bits(t), m_bits(m_const(12582912.0f)));
}
// exp of what the integer leaves of c.
MATH_FN F math_exp_rest(F c, F t) {
  const F nf = t - m_const(12582912.0f);
  // ln 2 in two parts; n times the first is exact.
  F r = m_fma(nf, m_const(-0x1.63p-1f), c);
  r = m_fma(nf, m_const(0x1.bd0106p-13f), r);
  F q = m_const(0x1.6d7ca6p-10f);
  q = m_fma(q, r, m_const(0x1.123b16p-7f));
  q = m_fma(q, r, m_const(0x1.5554bep-5f));
  q = m_fma(q, r, m_const(0x1.55549p-3f));
  q = m_fma(q, r, m_const(0.5f));
  return m_const(1.0f) + m_fma(r * r, q, r);
}

MATH_FN F math_exp(F x) {
  // The bounds lie past the last finite and the last nonzero result; NaN is kept by the order of
  // the operands.
  const F c = m_max(m_const(-105.0f), m_min(m_const(89.5f), x));
  const F t = math_exp_sum(c);
  const I n = math_exp_whole(t), half = m_sar1(n);
  return math_exp_rest(c, t) * math_pow2(half) * math_pow2(m_sub(n, half));
}

// The same bits for x in [-87, 88] and NaN: 2^n is one normal number there.
MATH_FN F math_exp_normal(F x) {
  const F t = math_exp_sum(x);
  return math_exp_rest(x, t) * math_pow2(math_exp_whole(t));
}
