// tanh(x): an odd polynomial below 0.625, 1 - 2 / (exp(2|x|) + 1) above. Needs exp.h. No include
// guard: a text for scalar and vector.

MATH_FN F math_abs(F x) {
  return m_from_bits(m_bits(x) & m_int(0x7fffffff));
}
MATH_FN F math_with_sign(F magnitude, F sign) {
  return m_from_bits(m_bits(magnitude) | (m_bits(sign) & m_int(-0x7fffffff - 1)));
}

MATH_FN F math_tanh(F x) {
  const F a = math_abs(x);
  const F z = a * a;
  F p = m_const(-0x1.769df8p-8f);
  p = m_fma(p, z, m_const(0x1.525328p-6f));
  p = m_fma(p, z, m_const(-0x1.b8439ap-5f));
  p = m_fma(p, z, m_const(0x1.110762p-3f));
  p = m_fma(p, z, m_const(-0x1.555534p-2f));
  const F low = m_fma(a * z, p, a);
  const F one = m_const(1.0f);
  const F high = one - m_const(2.0f) / (math_exp(a + a) + one);
  return math_with_sign(m_select(a < m_const(0.625f), low, high), x);
}
