// sigmoid, softplus and gelu, in the order of operations of CONTRACT E7. Needs exp.h, tanh.h, erf.h
// and log.h. No include guard: a text for scalar and vector.

MATH_FN F math_sigmoid(F x) {
  return m_const(1.0f) / (m_const(1.0f) + math_exp(m_const(0.0f) - x));
}
MATH_FN F math_softplus(F x) {
  return m_max(x, m_const(0.0f)) + math_log1p(math_exp(m_const(0.0f) - math_abs(x)));
}
MATH_FN F math_gelu_erf(F x) {
  return m_const(0.5f) * x * (m_const(1.0f) + math_erf(x / m_const(0x1.6a09e6p+0f)));
}
MATH_FN F math_gelu_tanh(F x) {
  const F t = m_const(0x1.988454p-1f) * (x + m_const(0x1.6e4e26p-5f) * (x * x * x));
  return m_const(0.5f) * x * (m_const(1.0f) + math_tanh(t));
}
