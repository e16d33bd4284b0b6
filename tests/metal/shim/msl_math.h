// <metal_math>, <metal_integer>, <metal_relational>: element by element, and over vectors.
#pragma once
#include "msl_traits.h"

namespace metal {

// Computed in float and rounded: a GPU's half functions are no better.
#define MSL_F1(name, expr)                            \
  inline float name(float x) {                        \
    return expr;                                      \
  }                                                   \
  inline half name(half h) {                          \
    float x = (float)h;                               \
    return (half)(expr);                              \
  }                                                   \
  inline bfloat name(bfloat h) {                      \
    float x = (float)h;                               \
    return (bfloat)(expr);                            \
  }                                                   \
  template <class T, int N>                           \
  inline vec<T, N> name(vec<T, N> v) {                \
    for (int i = 0; i < N; ++i) v[i] = name((T)v[i]); \
    return v;                                         \
  }
MSL_F1(exp, __builtin_expf(x))
MSL_F1(exp2, __builtin_exp2f(x))
MSL_F1(exp10, __builtin_exp2f(x * 3.32192809488736234787f))
MSL_F1(log, __builtin_logf(x))
MSL_F1(log2, __builtin_log2f(x))
MSL_F1(log10, __builtin_log10f(x))
// A fast root is not the nearest number, so that a library which should have precise ones is seen.
#ifdef MSLEMU_FAST_FUNCTIONS
#define MSL_ROOT(x) (__builtin_sqrtf(x) * 1.0000001f)
#else
#define MSL_ROOT(x) __builtin_sqrtf(x)
#endif
MSL_F1(sqrt, MSL_ROOT(x))
MSL_F1(rsqrt, 1.0f / MSL_ROOT(x))
MSL_F1(sin, __builtin_sinf(x))
MSL_F1(cos, __builtin_cosf(x))
MSL_F1(tan, __builtin_tanf(x))
MSL_F1(asin, __builtin_asinf(x))
MSL_F1(acos, __builtin_acosf(x))
MSL_F1(atan, __builtin_atanf(x))
MSL_F1(sinh, __builtin_sinhf(x))
MSL_F1(cosh, __builtin_coshf(x))
MSL_F1(tanh, __builtin_tanhf(x))
MSL_F1(asinh, __builtin_asinhf(x))
MSL_F1(acosh, __builtin_acoshf(x))
MSL_F1(atanh, __builtin_atanhf(x))
MSL_F1(floor, __builtin_floorf(x))
MSL_F1(ceil, __builtin_ceilf(x))
MSL_F1(round, __builtin_roundf(x))
MSL_F1(rint, __builtin_rintf(x))
MSL_F1(trunc, __builtin_truncf(x))
MSL_F1(fabs, __builtin_fabsf(x))
MSL_F1(abs, __builtin_fabsf(x))
MSL_F1(sign, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : 0.0f)
MSL_F1(fract, __builtin_fminf(x - __builtin_floorf(x), 0x1.fffffep-1f))
#undef MSL_F1

#define MSL_F2(name, expr)                                     \
  inline float name(float x, float y) {                        \
    return expr;                                               \
  }                                                            \
  inline half name(half a, half b) {                           \
    float x = (float)a, y = (float)b;                          \
    return (half)(expr);                                       \
  }                                                            \
  inline bfloat name(bfloat a, bfloat b) {                     \
    float x = (float)a, y = (float)b;                          \
    return (bfloat)(expr);                                     \
  }                                                            \
  template <class T, int N>                                    \
  inline vec<T, N> name(vec<T, N> a, vec<T, N> b) {            \
    for (int i = 0; i < N; ++i) a[i] = name((T)a[i], (T)b[i]); \
    return a;                                                  \
  }
MSL_F2(pow, __builtin_powf(x, y))
MSL_F2(powr, __builtin_powf(x, y))
MSL_F2(fmod, __builtin_fmodf(x, y))
MSL_F2(atan2, __builtin_atan2f(x, y))
MSL_F2(copysign, __builtin_copysignf(x, y))
MSL_F2(fmin, __builtin_fminf(x, y))
MSL_F2(fmax, __builtin_fmaxf(x, y))
#undef MSL_F2

inline int abs(int x) {
  return x < 0 ? -x : x;
}
inline long abs(long x) {
  return x < 0 ? -x : x;
}
inline float ldexp(float x, int n) {
  return __builtin_ldexpf(x, n);
}
#define MSL_CLASSES(T)                   \
  inline bool isnan(T x) {               \
    return x != x;                       \
  }                                      \
  inline bool isinf(T x) {               \
    return __builtin_isinf((float)x);    \
  }                                      \
  inline bool isfinite(T x) {            \
    return __builtin_isfinite((float)x); \
  }                                      \
  inline bool signbit(T x) {             \
    return __builtin_signbit((float)x);  \
  }
MSL_CLASSES(float)
MSL_CLASSES(half)
MSL_CLASSES(bfloat)
#undef MSL_CLASSES

inline float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline half fma(half a, half b, half c) {
  return (half)__builtin_fmaf((float)a, (float)b, (float)c);
}
template <class T, int N>
inline vec<T, N> fma(vec<T, N> a, vec<T, N> b, vec<T, N> c) {
  for (int i = 0; i < N; ++i) c[i] = fma((T)a[i], (T)b[i], (T)c[i]);
  return c;
}

#define MSL_USE                           \
  using metal::exp;                       \
  using metal::exp2;                      \
  using metal::exp10;                     \
  using metal::log;                       \
  using metal::log2;                      \
  using metal::log10;                     \
  using metal::sqrt;                      \
  using metal::rsqrt;                     \
  using metal::tanh;                      \
  using metal::sin;                       \
  using metal::cos;                       \
  using metal::tan;                       \
  using metal::pow;                       \
  using metal::atan2;                     \
  inline float divide(float a, float b) { \
    return a / b;                         \
  }
namespace fast {
MSL_USE
}
namespace precise {
MSL_USE
}
#undef MSL_USE

// A NaN loses in float, as in MSL.
#define MSL_MINMAX(T, lesser, greater) \
  inline T min(T a, T b) {             \
    return lesser;                     \
  }                                    \
  inline T max(T a, T b) {             \
    return greater;                    \
  }                                    \
  inline T clamp(T x, T lo, T hi) {    \
    return min(max(x, lo), hi);        \
  }
#define MSL_MINMAX_INT(T) MSL_MINMAX(T, b < a ? b : a, a < b ? b : a)
#define MSL_MINMAX_NARROW(T) \
  MSL_MINMAX(T, (T)__builtin_fminf((float)a, (float)b), (T)__builtin_fmaxf((float)a, (float)b))
MSL_MINMAX(float, __builtin_fminf(a, b), __builtin_fmaxf(a, b))
MSL_MINMAX_NARROW(half)
MSL_MINMAX_NARROW(bfloat)
MSL_MINMAX_INT(int)
MSL_MINMAX_INT(uint)
MSL_MINMAX_INT(short)
MSL_MINMAX_INT(ushort)
MSL_MINMAX_INT(char)
MSL_MINMAX_INT(signed char)
MSL_MINMAX_INT(uchar)
MSL_MINMAX_INT(long)
MSL_MINMAX_INT(ulong)
#undef MSL_MINMAX_INT
#undef MSL_MINMAX_NARROW
#undef MSL_MINMAX
template <class T, int N>
inline vec<T, N> min(vec<T, N> a, vec<T, N> b) {
  for (int i = 0; i < N; ++i) a[i] = min((T)a[i], (T)b[i]);
  return a;
}
template <class T, int N>
inline vec<T, N> max(vec<T, N> a, vec<T, N> b) {
  for (int i = 0; i < N; ++i) a[i] = max((T)a[i], (T)b[i]);
  return a;
}
template <class T, int N>
inline vec<T, N> clamp(vec<T, N> x, vec<T, N> lo, vec<T, N> hi) {
  return min(max(x, lo), hi);
}
template <class T, int N>
inline T dot(vec<T, N> a, vec<T, N> b) {
  T s = (T)0;
  for (int i = 0; i < N; ++i) s += a[i] * b[i];
  return s;
}
template <class T, int N>
inline bool any(vec<T, N> a) {
  for (int i = 0; i < N; ++i)
    if (a[i]) return true;
  return false;
}
template <class T, int N>
inline bool all(vec<T, N> a) {
  for (int i = 0; i < N; ++i)
    if (!a[i]) return false;
  return true;
}
inline float mix(float a, float b, float t) {
  return a + (b - a) * t;
}
template <class T>
inline T select(T a, T b, bool c) {
  return c ? b : a;
}
template <class T, int N>
inline vec<T, N> select(vec<T, N> a, vec<T, N> b, vec<bool, N> c) {
  for (int i = 0; i < N; ++i) a[i] = c[i] ? b[i] : a[i];
  return a;
}

inline uint popcount(uint x) {
  return __builtin_popcount(x);
}
inline ulong popcount(ulong x) {
  return __builtin_popcountl(x);
}
inline uint clz(uint x) {
  return x ? __builtin_clz(x) : 32;
}
inline ulong clz(ulong x) {
  return x ? __builtin_clzl(x) : 64;
}
inline uint ctz(uint x) {
  return x ? __builtin_ctz(x) : 32;
}
inline ulong ctz(ulong x) {
  return x ? __builtin_ctzl(x) : 64;
}
inline uint reverse_bits(uint x) {
  return __builtin_bitreverse32(x);
}
inline uint rotate(uint x, uint n) {
  return (x << (n & 31)) | (x >> ((32 - n) & 31));
}
inline uint mulhi(uint a, uint b) {
  return (uint)(((ulong)a * b) >> 32);
}
inline int mulhi(int a, int b) {
  return (int)(((long)a * b) >> 32);
}
inline ulong mulhi(ulong a, ulong b) {
  return (ulong)(((unsigned __int128)a * b) >> 64);
}
inline uint absdiff(uint a, uint b) {
  return a < b ? b - a : a - b;
}
inline uint extract_bits(uint x, uint off, uint n) {
  return n ? (x >> off) & (n == 32 ? ~0u : (1u << n) - 1) : 0;
}

}  // namespace metal
