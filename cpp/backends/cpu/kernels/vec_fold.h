// Reductions over the lanes, in the order of the tree 8, 4, 2, 1: sixteen lanes folded to four, and
// sixteen vectors reduced at once to a vector of their sums.
#pragma once

typedef float V4 __attribute__((vector_size(16)));

#if ACCEL_ISA_avx512
static ACCEL_INLINE V4 fold_add(F16x a) {
  const __m256 s = _mm512_castps512_ps256(a.p[0]) + _mm512_extractf32x8_ps(a.p[0], 1);
  return (V4)(_mm256_castps256_ps128(s) + _mm256_extractf128_ps(s, 1));
}
static ACCEL_INLINE V4 fold_max(F16x a) {
  const __m256 s = _mm256_max_ps(_mm512_castps512_ps256(a.p[0]), _mm512_extractf32x8_ps(a.p[0], 1));
  return (V4)_mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
// Each step adds the lower and the upper halves of two vectors' groups into one vector. Where a
// blend gives one of the two operands it does: only one port shuffles.
static ACCEL_INLINE V add_halves(V a, V b) {
  return _mm512_mask_blend_ps(0xff00, a, b) + _mm512_shuffle_f32x4(a, b, 0x4e);
}
static ACCEL_INLINE V add_quarters(V a, V b) {
  return _mm512_shuffle_f32x4(a, b, 0x88) + _mm512_shuffle_f32x4(a, b, 0xdd);
}
static ACCEL_INLINE V add_pairs(V a, V b) {
  return _mm512_mask_blend_ps(0xcccc, a, b) + _mm512_shuffle_ps(a, b, 0x4e);
}
static ACCEL_INLINE V add_neighbours(V a, V b) {
  return _mm512_shuffle_ps(a, b, 0x88) + _mm512_shuffle_ps(a, b, 0xdd);
}
static ACCEL_INLINE V four_sums(const F16x* v, int j) {
  return add_quarters(add_halves(v[j].p[0], v[j + 8].p[0]),
                      add_halves(v[j + 4].p[0], v[j + 12].p[0]));
}
// Lane j is sum16(v[j]).
static ACCEL_INLINE F16x sums16(const F16x* v) {
  const V low = add_pairs(four_sums(v, 0), four_sums(v, 1));
  const V high = add_pairs(four_sums(v, 2), four_sums(v, 3));
  const V all = add_neighbours(low, high);  // blocks of 4 lanes stand in the order 0, 8, 4, 12
  return {{_mm512_shuffle_f32x4(all, all, 0xd8)}};
}

#elif ACCEL_ISA_avx2
static ACCEL_INLINE V4 fold_add(F16x a) {
  const V s = a.p[0] + a.p[1];
  return (V4)(_mm256_castps256_ps128(s) + _mm256_extractf128_ps(s, 1));
}
static ACCEL_INLINE V4 fold_max(F16x a) {
  const V s = _mm256_max_ps(a.p[0], a.p[1]);
  return (V4)_mm_max_ps(_mm256_castps256_ps128(s), _mm256_extractf128_ps(s, 1));
}
static ACCEL_INLINE V two_sums(F16x a, F16x b) {
  const V s = a.p[0] + a.p[1], t = b.p[0] + b.p[1];
  return _mm256_permute2f128_ps(s, t, 0x20) + _mm256_permute2f128_ps(s, t, 0x31);
}
static ACCEL_INLINE V add_pairs(V a, V b) {
  return _mm256_shuffle_ps(a, b, 0x44) + _mm256_shuffle_ps(a, b, 0xee);
}
static ACCEL_INLINE V add_neighbours(V a, V b) {
  return _mm256_shuffle_ps(a, b, 0x88) + _mm256_shuffle_ps(a, b, 0xdd);
}
static ACCEL_INLINE V eight_sums(const F16x* v) {
  const V low = add_pairs(two_sums(v[0], v[4]), two_sums(v[1], v[5]));
  const V high = add_pairs(two_sums(v[2], v[6]), two_sums(v[3], v[7]));
  return add_neighbours(low, high);
}
static ACCEL_INLINE F16x sums16(const F16x* v) {
  return {{eight_sums(v), eight_sums(v + 8)}};
}

#else
static ACCEL_INLINE V4 fold_add(F16x a) {
  return (a.p[0] + a.p[2]) + (a.p[1] + a.p[3]);
}
static ACCEL_INLINE V4 fold_max(F16x a) {
  return v_max(v_max(a.p[0], a.p[2]), v_max(a.p[1], a.p[3]));
}
static ACCEL_INLINE V add_pairs(V a, V b) {
  return __builtin_shufflevector(a, b, 0, 1, 4, 5) + __builtin_shufflevector(a, b, 2, 3, 6, 7);
}
static ACCEL_INLINE V four_sums(const F16x* v) {
  const V a = add_pairs(fold_add(v[0]), fold_add(v[1]));
  const V b = add_pairs(fold_add(v[2]), fold_add(v[3]));
  return __builtin_shufflevector(a, b, 0, 2, 4, 6) + __builtin_shufflevector(a, b, 1, 3, 5, 7);
}
static ACCEL_INLINE F16x sums16(const F16x* v) {
  return {{four_sums(v), four_sums(v + 4), four_sums(v + 8), four_sums(v + 12)}};
}
#endif
