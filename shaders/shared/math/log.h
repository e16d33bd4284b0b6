// log(x) and log1p(x): x = 2^e * (1 + f) with 1 + f in [sqrt(1/2), sqrt(2)); log(1 + f) = f - f^2/2
// + f^3 P(f). log(0) is -inf, negative arguments give NaN, inf gives inf. No include guard: a text
// for scalar and vector.

// e * ln 2 + log(1 + f) + c, where c is what rounding took from the argument, relative to it.
MATH_FN F math_log_parts(F e, F f, F c) {
  const F z = f * f;
  F p = m_const(0x1.1484e8p-4f);
  p = m_fma(p, f, m_const(-0x1.de1004p-4f));
  p = m_fma(p, f, m_const(0x1.e6c03ep-4f));
  p = m_fma(p, f, m_const(-0x1.fc26acp-4f));
  p = m_fma(p, f, m_const(0x1.233b78p-3f));
  p = m_fma(p, f, m_const(-0x1.555c4ep-3f));
  p = m_fma(p, f, m_const(0x1.99a478p-3f));
  p = m_fma(p, f, m_const(-0x1.000006p-2f));
  p = m_fma(p, f, m_const(0x1.555548p-2f));
  F y = f * z * p;
  y = m_fma(e, m_const(-0x1.bd0106p-13f), y) + c;
  y = m_fma(m_const(-0.5f), z, y);
  return m_fma(e, m_const(0x1.63p-1f), f + y);  // e times the high part of ln 2 is exact
}

// The exponent that leaves the mantissa of a positive normal x in [sqrt(1/2), sqrt(2)).
MATH_FN I math_exponent(F x) {
  return m_sar23(m_sub(m_bits(x), m_int(0x3f3504f3)));
}
MATH_FN F math_mantissa(F x, I e) {
  return m_from_bits(m_sub(m_bits(x), m_shl23(e)));
}

MATH_FN F math_log_special(F x, F r) {
  const F inf = m_from_bits(m_int(0x7f800000));
  r = m_select(x < inf, r, x);  // inf and NaN stay
  r = m_select(x == m_const(0.0f), m_const(0.0f) - inf, r);
  return m_select(x < m_const(0.0f), m_from_bits(m_int(0x7fc00000)), r);
}

MATH_FN F math_log(F x) {
  const B small =
      x < m_const(0x1p-126f);  // subnormal: scaled by 2^23 and taken back in the exponent
  const F s = m_select(small, x * m_const(0x1p23f), x);
  const I e = math_exponent(s);
  const F ef = m_to_float(e) - m_select(small, m_const(23.0f), m_const(0.0f));
  const F r = math_log_parts(ef, math_mantissa(s, e) - m_const(1.0f), m_const(0.0f));
  return math_log_special(x, r);
}

MATH_FN F math_log1p(F x) {
  const F one = m_const(1.0f);
  const F u = one + x;
  const F lost = m_select(x < one, x - (u - one), one - (u - x));
  const I e = math_exponent(u);
  const F ef = m_to_float(e);
  // With e = 0 the argument itself is f, and nothing was lost.
  const B near = ef == m_const(0.0f);
  const F f = m_select(near, x, math_mantissa(u, e) - one);
  const F c = m_select(near, m_const(0.0f), lost / u);
  const F r = math_log_special(u, math_log_parts(ef, f, c));
  return m_select(x == m_const(0.0f), x, r);  // the sign of zero
}
