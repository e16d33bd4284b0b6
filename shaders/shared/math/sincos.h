// sin(x), cos(x): x - n * pi/2 with pi/2 in three parts, n = round(x * 2/pi), then a polynomial on
// [-pi/4, pi/4] chosen by n mod 4. Within 2^-20 up to |x| = 2^20; past that any value in [-1, 1];
// inf and NaN give NaN. No include guard: a text for scalar and vector.

struct MathAngle {
  F r;  // the rest
  I n;  // multiples of pi/2, modulo 2^22
};

MATH_FN MathAngle math_reduce(F x) {
  const F most = m_const(0x1p22f);
  const F c = m_max(m_const(-0x1p22f), m_min(most, x));  // NaN passes
  const F magic = m_const(12582912.0f);
  const F t = m_fma(c, m_const(0x1.45f306p-1f), magic);
  const F n = t - magic;
  // The product with the first part is taken exactly, as p + its error, and c - p is exact.
  const F first = m_const(0x1.921fb6p+0f);
  const F p = n * first;
  F r = (c - p) - m_mul_error(n, first, p);
  r = m_fma(n, m_const(0x1.777a5cp-25f), r);
  r = m_fma(n, m_const(0x1.ee59dap-50f), r);
  MathAngle a;
  a.r = m_select(c == x, r, x - x);  // past the bound 0, or NaN where x is not finite
  a.n = m_bits(t);
  return a;
}

MATH_FN F math_sin_part(F r) {
  const F z = r * r;
  F p = m_const(-0x1.98733ap-13f);
  p = m_fma(p, z, m_const(0x1.110464p-7f));
  p = m_fma(p, z, m_const(-0x1.55553cp-3f));
  return m_fma(r * z, p, r);
}

MATH_FN F math_cos_part(F r) {
  const F z = r * r;
  F p = m_const(0x1.99886ap-16f);
  p = m_fma(p, z, m_const(-0x1.6c0ae2p-10f));
  p = m_fma(p, z, m_const(0x1.555548p-5f));
  return m_fma(z * z, p, m_fma(m_const(-0.5f), z, m_const(1.0f)));
}

// sin(r + n * pi/2): odd n takes the cosine, n = 2 and 3 modulo 4 the other sign.
MATH_FN F math_sin_at(F r, I n) {
  const B even = m_to_float(n & m_int(1)) == m_const(0.0f);
  const F y = m_select(even, math_sin_part(r), math_cos_part(r));
  return m_from_bits(m_bits(y) ^ m_shl30(n & m_int(2)));
}

MATH_FN F math_sin(F x) {
  const MathAngle a = math_reduce(x);
  return math_sin_at(a.r, a.n);
}
MATH_FN F math_cos(F x) {
  const MathAngle a = math_reduce(x);
  return math_sin_at(a.r, m_add(a.n, m_int(1)));
}
