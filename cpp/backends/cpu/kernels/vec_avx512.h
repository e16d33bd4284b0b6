// One zmm register holds all sixteen lanes.
#pragma once

typedef __m512 V;
typedef __m512i VI;
typedef __mmask16 VM;
enum { kLanes = 16 };

static ACCEL_INLINE VM first_lanes(int n) {
  return (VM)((1u << n) - 1u);
}

static ACCEL_INLINE V v_set(float x) {
  return _mm512_set1_ps(x);
}
static ACCEL_INLINE V v_load(const float* p) {
  return _mm512_loadu_ps(p);
}
static ACCEL_INLINE void v_store(float* p, V a) {
  _mm512_storeu_ps(p, a);
}
static ACCEL_INLINE V v_loadn(const float* p, int n) {
  return _mm512_maskz_loadu_ps(first_lanes(n), p);
}
static ACCEL_INLINE void v_storen(float* p, V a, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), a);
}
static ACCEL_INLINE V v_add(V a, V b) {
  return _mm512_add_ps(a, b);
}
static ACCEL_INLINE V v_sub(V a, V b) {
  return _mm512_sub_ps(a, b);
}
static ACCEL_INLINE V v_mul(V a, V b) {
  return _mm512_mul_ps(a, b);
}
static ACCEL_INLINE V v_div(V a, V b) {
  return _mm512_div_ps(a, b);
}
static ACCEL_INLINE V v_fma(V a, V b, V c) {
  return _mm512_fmadd_ps(a, b, c);
}
static ACCEL_INLINE V v_min(V a, V b) {
  return _mm512_min_ps(a, b);
}
static ACCEL_INLINE V v_max(V a, V b) {
  return _mm512_max_ps(a, b);
}
static ACCEL_INLINE V v_sqrt(V a) {
  return _mm512_sqrt_ps(a);
}
static ACCEL_INLINE VM v_lt(V a, V b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}
static ACCEL_INLINE VM v_le(V a, V b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ);
}
static ACCEL_INLINE VM v_eq(V a, V b) {
  return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ);
}
static ACCEL_INLINE V v_select(VM m, V a, V b) {
  return _mm512_mask_blend_ps(m, b, a);
}

static ACCEL_INLINE VI v_iset(int x) {
  return _mm512_set1_epi32(x);
}
static ACCEL_INLINE VI v_iload(const int* p) {
  return _mm512_loadu_si512(p);
}
static ACCEL_INLINE void v_istore(int* p, VI a) {
  _mm512_storeu_si512(p, a);
}
static ACCEL_INLINE VI v_bits(V a) {
  return _mm512_castps_si512(a);
}
static ACCEL_INLINE V v_float(VI a) {
  return _mm512_castsi512_ps(a);
}
static ACCEL_INLINE V v_from_int(VI a) {
  return _mm512_cvtepi32_ps(a);
}
static ACCEL_INLINE VI v_iadd(VI a, VI b) {
  return _mm512_add_epi32(a, b);
}
static ACCEL_INLINE VI v_isub(VI a, VI b) {
  return _mm512_sub_epi32(a, b);
}
static ACCEL_INLINE VI v_iand(VI a, VI b) {
  return _mm512_and_si512(a, b);
}
static ACCEL_INLINE VI v_ior(VI a, VI b) {
  return _mm512_or_si512(a, b);
}
static ACCEL_INLINE VI v_ixor(VI a, VI b) {
  return _mm512_xor_si512(a, b);
}
template <int N>
static ACCEL_INLINE VI v_shl(VI a) {
  return _mm512_slli_epi32(a, N);
}
template <int N>
static ACCEL_INLINE VI v_shr(VI a) {
  return _mm512_srli_epi32(a, N);
}
template <int N>
static ACCEL_INLINE VI v_sar(VI a) {
  return _mm512_srai_epi32(a, N);
}
static ACCEL_INLINE VM v_ilt(VI a, VI b) {
  return _mm512_cmplt_epi32_mask(a, b);
}
static ACCEL_INLINE VM v_ieq(VI a, VI b) {
  return _mm512_cmpeq_epi32_mask(a, b);
}
static ACCEL_INLINE VI v_iselect(VM m, VI a, VI b) {
  return _mm512_mask_blend_epi32(m, b, a);
}

static ACCEL_INLINE VM v_mand(VM a, VM b) {
  return (VM)(a & b);
}
static ACCEL_INLINE VM v_mor(VM a, VM b) {
  return (VM)(a | b);
}
static ACCEL_INLINE VM v_mnot(VM a) {
  return (VM)~a;
}
static ACCEL_INLINE u32 v_mbits(VM a) {
  return a;
}

static ACCEL_INLINE V v_load(const f16* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)p));
}
static ACCEL_INLINE V v_load(const bf16* p) {
  const __m256i h = _mm256_loadu_si256((const __m256i*)p);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
static ACCEL_INLINE V v_load(const signed char* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i*)p)));
}
// a holds no NaN but the canonical one.
static ACCEL_INLINE void v_store_f16(f16* p, V a) {
  const __m256i h = _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  _mm256_storeu_si256((__m256i*)p, h);
}
