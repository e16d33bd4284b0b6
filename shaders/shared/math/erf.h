// erf(x): an odd polynomial below 1, 1 - exp(P(|x|)) above, where P is log(1 - erf). Needs exp.h
// and tanh.h (signs). No include guard: a text for scalar and vector.

MATH_FN F math_erf(F x) {
  const F a = math_abs(x);
  const F z = a * a;
  F p = m_const(-0x1.19f3f6p-11f);
  p = m_fma(p, z, m_const(0x1.3dca4ap-8f));
  p = m_fma(p, z, m_const(-0x1.b4894ap-6f));
  p = m_fma(p, z, m_const(0x1.cdeae6p-4f));
  p = m_fma(p, z, m_const(-0x1.81251ep-2f));
  p = m_fma(p, z, m_const(0x1.20dd7p+0f));
  const F low = a * p;
  const F t = m_min(m_const(4.0f), a);  // 1 - erf(4) is below half an ulp of 1; NaN passes
  F q = m_const(-0x1.6bddb2p-16f);
  q = m_fma(q, t, m_const(0x1.cecaacp-12f));
  q = m_fma(q, t, m_const(-0x1.138e3p-8f));
  q = m_fma(q, t, m_const(0x1.9d03ecp-6f));
  q = m_fma(q, t, m_const(-0x1.bc1564p-4f));
  q = m_fma(q, t, m_const(-0x1.443556p-1f));
  q = m_fma(q, t, m_const(-0x1.212c0ep+0f));
  q = m_fma(q, t, m_const(0x1.8a5954p-13f));
  const F high = m_const(1.0f) - math_exp(q);
  return math_with_sign(m_select(a < m_const(1.0f), low, high), x);
}
