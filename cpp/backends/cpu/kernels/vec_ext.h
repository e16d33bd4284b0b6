// Four vectors of four lanes in the compiler's own vector extension: level `base` on any machine
// (SSE2 on x86), and NEON, which adds a fused multiply-add.
#pragma once

typedef float V __attribute__((vector_size(16)));
typedef int VI __attribute__((vector_size(16)));
typedef VI VM;
enum { kLanes = 4 };
typedef float VAny __attribute__((vector_size(16), aligned(4), may_alias));
typedef int VIAny __attribute__((vector_size(16), aligned(4), may_alias));
typedef unsigned VU __attribute__((vector_size(16)));

static ACCEL_INLINE V v_set(float x) {
  return V{x, x, x, x};
}
static ACCEL_INLINE V v_load(const float* p) {
  return (V)(*(const VAny*)p);
}
static ACCEL_INLINE void v_store(float* p, V a) {
  *(VAny*)p = (VAny)a;
}
static ACCEL_INLINE V v_loadn(const float* p, int n) {
  return V{n > 0 ? p[0] : 0.0f, n > 1 ? p[1] : 0.0f, n > 2 ? p[2] : 0.0f, n > 3 ? p[3] : 0.0f};
}
static ACCEL_INLINE void v_storen(float* p, V a, int n) {
  if (n > 0) p[0] = a[0];
  if (n > 1) p[1] = a[1];
  if (n > 2) p[2] = a[2];
  if (n > 3) p[3] = a[3];
}
static ACCEL_INLINE V v_add(V a, V b) {
  return a + b;
}
static ACCEL_INLINE V v_sub(V a, V b) {
  return a - b;
}
static ACCEL_INLINE V v_mul(V a, V b) {
  return a * b;
}
static ACCEL_INLINE V v_div(V a, V b) {
  return a / b;
}
static ACCEL_INLINE VM v_lt(V a, V b) {
  return (VM)(a < b);
}
static ACCEL_INLINE VM v_le(V a, V b) {
  return (VM)(a <= b);
}
static ACCEL_INLINE VM v_eq(V a, V b) {
  return (VM)(a == b);
}
static ACCEL_INLINE V v_select(VM m, V a, V b) {
  return (V)((m & (VI)a) | (~m & (VI)b));
}
static ACCEL_INLINE V v_min(V a, V b) {
  return v_select(v_lt(a, b), a, b);
}
static ACCEL_INLINE V v_max(V a, V b) {
  return v_select(v_lt(b, a), a, b);
}
#if ACCEL_ISA_neon
static ACCEL_INLINE V v_fma(V a, V b, V c) {
  return (V)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#else
static ACCEL_INLINE V v_fma(V a, V b, V c) {
  return a * b + c;
}
#endif
#if defined(__SSE2__)
static ACCEL_INLINE V v_sqrt(V a) {
  return (V)_mm_sqrt_ps((__m128)a);
}
#else
static ACCEL_INLINE V v_sqrt(V a) {
  return V{__builtin_sqrtf(a[0]), __builtin_sqrtf(a[1]), __builtin_sqrtf(a[2]),
           __builtin_sqrtf(a[3])};
}
#endif

static ACCEL_INLINE VI v_iset(int x) {
  return VI{x, x, x, x};
}
static ACCEL_INLINE VI v_iload(const int* p) {
  return (VI)(*(const VIAny*)p);
}
static ACCEL_INLINE void v_istore(int* p, VI a) {
  *(VIAny*)p = (VIAny)a;
}
static ACCEL_INLINE VI v_bits(V a) {
  return (VI)a;
}
static ACCEL_INLINE V v_float(VI a) {
  return (V)a;
}
static ACCEL_INLINE V v_from_int(VI a) {
  return __builtin_convertvector(a, V);
}
static ACCEL_INLINE VI v_iadd(VI a, VI b) {
  return (VI)((VU)a + (VU)b);
}
static ACCEL_INLINE VI v_isub(VI a, VI b) {
  return (VI)((VU)a - (VU)b);
}
static ACCEL_INLINE VI v_iand(VI a, VI b) {
  return a & b;
}
static ACCEL_INLINE VI v_ior(VI a, VI b) {
  return a | b;
}
static ACCEL_INLINE VI v_ixor(VI a, VI b) {
  return a ^ b;
}
template <int N>
static ACCEL_INLINE VI v_shl(VI a) {
  return (VI)((VU)a << N);
}
template <int N>
static ACCEL_INLINE VI v_shr(VI a) {
  return (VI)((VU)a >> N);
}
template <int N>
static ACCEL_INLINE VI v_sar(VI a) {
  return a >> N;
}
static ACCEL_INLINE VM v_ilt(VI a, VI b) {
  return (VM)(a < b);
}
static ACCEL_INLINE VM v_ieq(VI a, VI b) {
  return (VM)(a == b);
}
static ACCEL_INLINE VI v_iselect(VM m, VI a, VI b) {
  return (m & a) | (~m & b);
}

static ACCEL_INLINE VM v_mand(VM a, VM b) {
  return a & b;
}
static ACCEL_INLINE VM v_mor(VM a, VM b) {
  return a | b;
}
static ACCEL_INLINE VM v_mnot(VM a) {
  return ~a;
}
static ACCEL_INLINE u32 v_mbits(VM a) {
  return (u32)((a[0] & 1) | (a[1] & 2) | (a[2] & 4) | (a[3] & 8));
}

// f16 in integer arithmetic: the exponent is moved by an exact product with 2^112, which also makes
// subnormals normal.
static ACCEL_INLINE V v_load(const f16* p) {
  const VI h = VI{p[0].bits, p[1].bits, p[2].bits, p[3].bits};
  const VI magnitude = (h & 0x7fff) << 13;
  const V finite = (V)magnitude * 0x1p112f;
  const VI quiet = ((h & 0x3ff) != 0) & 0x400000;
  const VI special = magnitude | 0x7f800000 | quiet;
  const VI bits = v_iselect((h & 0x7c00) == 0x7c00, special, (VI)finite);
  return (V)(bits | v_shl<16>(h & 0x8000));
}
static ACCEL_INLINE V v_load(const bf16* p) {
  const VI h = VI{p[0].bits, p[1].bits, p[2].bits, p[3].bits};
  return (V)v_shl<16>(h);
}
static ACCEL_INLINE V v_load(const signed char* p) {
  return V{(float)p[0], (float)p[1], (float)p[2], (float)p[3]};
}
// a holds no NaN but the canonical one. Below 2^-14 the sum with 0.5 rounds at the weight of an f16
// subnormal; above, the carry of the rounding runs into the exponent by itself.
static ACCEL_INLINE void v_store_f16(f16* p, V a) {
  const VI bits = (VI)a, sign = v_shr<16>(bits) & 0x8000, u = bits & 0x7fffffff;
  const VI small = v_isub((VI)((V)u + 0.5f), v_iset(0x3f000000));
  const VI odd = v_shr<13>(u) & 1;
  const VI normal = v_shr<13>(v_iadd(v_iadd(u, v_iset((int)0xc8000fffu)), odd));
  const VI large = v_iselect(u > 0x7f800000, v_iset(0x7e00), v_iset(0x7c00));
  VI h = v_iselect(u < 0x38800000, small, normal);
  h = v_iselect(u >= 0x47800000, large, h) | sign;
  for (int i = 0; i < 4; ++i) p[i].bits = (u16)h[i];
}
