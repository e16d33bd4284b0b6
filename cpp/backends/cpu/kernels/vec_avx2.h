// Two ymm registers of eight lanes.
#pragma once

typedef __m256 V;
typedef __m256i VI;
typedef __m256 VM;
enum { kLanes = 8 };

static ACCEL_INLINE __m256i first_lanes(int n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static ACCEL_INLINE V v_set(float x) {
  return _mm256_set1_ps(x);
}
static ACCEL_INLINE V v_load(const float* p) {
  return _mm256_loadu_ps(p);
}
static ACCEL_INLINE void v_store(float* p, V a) {
  _mm256_storeu_ps(p, a);
}
static ACCEL_INLINE V v_loadn(const float* p, int n) {
  return _mm256_maskload_ps(p, first_lanes(n));
}
static ACCEL_INLINE void v_storen(float* p, V a, int n) {
  _mm256_maskstore_ps(p, first_lanes(n), a);
}
static ACCEL_INLINE V v_add(V a, V b) {
  return _mm256_add_ps(a, b);
}
static ACCEL_INLINE V v_sub(V a, V b) {
  return _mm256_sub_ps(a, b);
}
static ACCEL_INLINE V v_mul(V a, V b) {
  return _mm256_mul_ps(a, b);
}
static ACCEL_INLINE V v_div(V a, V b) {
  return _mm256_div_ps(a, b);
}
static ACCEL_INLINE V v_fma(V a, V b, V c) {
  return _mm256_fmadd_ps(a, b, c);
}
static ACCEL_INLINE V v_min(V a, V b) {
  return _mm256_min_ps(a, b);
}
static ACCEL_INLINE V v_max(V a, V b) {
  return _mm256_max_ps(a, b);
}
static ACCEL_INLINE V v_sqrt(V a) {
  return _mm256_sqrt_ps(a);
}
static ACCEL_INLINE VM v_lt(V a, V b) {
  return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}
static ACCEL_INLINE VM v_le(V a, V b) {
  return _mm256_cmp_ps(a, b, _CMP_LE_OQ);
}
static ACCEL_INLINE VM v_eq(V a, V b) {
  return _mm256_cmp_ps(a, b, _CMP_EQ_OQ);
}
static ACCEL_INLINE V v_select(VM m, V a, V b) {
  return _mm256_blendv_ps(b, a, m);
}

static ACCEL_INLINE VI v_iset(int x) {
  return _mm256_set1_epi32(x);
}
static ACCEL_INLINE VI v_iload(const int* p) {
  return _mm256_loadu_si256((const __m256i*)p);
}
static ACCEL_INLINE void v_istore(int* p, VI a) {
  _mm256_storeu_si256((__m256i*)p, a);
}
static ACCEL_INLINE VI v_bits(V a) {
  return _mm256_castps_si256(a);
}
static ACCEL_INLINE V v_float(VI a) {
  return _mm256_castsi256_ps(a);
}
static ACCEL_INLINE V v_from_int(VI a) {
  return _mm256_cvtepi32_ps(a);
}
static ACCEL_INLINE VI v_iadd(VI a, VI b) {
  return _mm256_add_epi32(a, b);
}
static ACCEL_INLINE VI v_isub(VI a, VI b) {
  return _mm256_sub_epi32(a, b);
}
static ACCEL_INLINE VI v_iand(VI a, VI b) {
  return _mm256_and_si256(a, b);
}
static ACCEL_INLINE VI v_ior(VI a, VI b) {
  return _mm256_or_si256(a, b);
}
static ACCEL_INLINE VI v_ixor(VI a, VI b) {
  return _mm256_xor_si256(a, b);
}
template <int N>
static ACCEL_INLINE VI v_shl(VI a) {
  return _mm256_slli_epi32(a, N);
}
template <int N>
static ACCEL_INLINE VI v_shr(VI a) {
  return _mm256_srli_epi32(a, N);
}
template <int N>
static ACCEL_INLINE VI v_sar(VI a) {
  return _mm256_srai_epi32(a, N);
}
static ACCEL_INLINE VM v_ilt(VI a, VI b) {
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a));
}
static ACCEL_INLINE VM v_ieq(VI a, VI b) {
  return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b));
}
static ACCEL_INLINE VI v_iselect(VM m, VI a, VI b) {
  return _mm256_blendv_epi8(b, a, _mm256_castps_si256(m));
}

static ACCEL_INLINE VM v_mand(VM a, VM b) {
  return _mm256_and_ps(a, b);
}
static ACCEL_INLINE VM v_mor(VM a, VM b) {
  return _mm256_or_ps(a, b);
}
static ACCEL_INLINE VM v_mnot(VM a) {
  return _mm256_xor_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(-1)));
}
static ACCEL_INLINE u32 v_mbits(VM a) {
  return (u32)_mm256_movemask_ps(a);
}

static ACCEL_INLINE V v_load(const f16* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)p));
}
static ACCEL_INLINE V v_load(const bf16* p) {
  const __m128i h = _mm_loadu_si128((const __m128i*)p);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
static ACCEL_INLINE V v_load(const signed char* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)p)));
}
// a holds no NaN but the canonical one.
static ACCEL_INLINE void v_store_f16(f16* p, V a) {
  const __m128i h = _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm_storeu_si128((__m128i*)p, h);
}
