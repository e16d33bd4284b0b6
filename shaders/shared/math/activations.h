// Activation functions, in the order of operations of CONTRACT 9. Needs exp.h. No include guard: a
// text for scalar and vector.

MATH_FN F math_silu(F x) {
  return x / (m_const(1.0f) + math_exp(m_const(0.0f) - x));
}
MATH_FN F math_swiglu(F gate, F value) {
  return math_silu(gate) * value;
}
