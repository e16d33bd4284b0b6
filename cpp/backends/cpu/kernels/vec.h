// The sixteen-lane vector that every CPU kernel is written over: one zmm, two ymm or four 128-bit
// vectors, chosen by ACCEL_ISA_<isa>. Included inside the instruction set's namespace; no member
// functions, so no weak symbols. avx2, avx512 and neon give equal bits in every function; base
// rounds the product of fma before the sum.
#pragma once

#define ACCEL_INLINE inline __attribute__((always_inline, unused))
// Before a loop of constant length over vectors that must stay in registers.
#if defined(__clang__)
#define ACCEL_UNROLL _Pragma("clang loop unroll(full)")
#else
#define ACCEL_UNROLL _Pragma("GCC unroll 16")
#endif

typedef unsigned char u8;
typedef unsigned short u16;
using accel_cpu::u32;
using accel_cpu::u64;
struct f16 {
  u16 bits;
};
struct bf16 {
  u16 bits;
};

#if ACCEL_ISA_avx512
#include "backends/cpu/kernels/vec_avx512.h"
#define ACCEL_V1(f, a) \
  {                    \
    { f(a.p[0]) }      \
  }
#define ACCEL_V2(f, a, b) \
  {                       \
    { f(a.p[0], b.p[0]) } \
  }
#define ACCEL_V3(f, a, b, c)      \
  {                               \
    { f(a.p[0], b.p[0], c.p[0]) } \
  }
#define ACCEL_V0(e) \
  {                 \
    { e }           \
  }
#elif ACCEL_ISA_avx2
#include "backends/cpu/kernels/vec_avx2.h"
#define ACCEL_V1(f, a)       \
  {                          \
    { f(a.p[0]), f(a.p[1]) } \
  }
#define ACCEL_V2(f, a, b)                    \
  {                                          \
    { f(a.p[0], b.p[0]), f(a.p[1], b.p[1]) } \
  }
#define ACCEL_V3(f, a, b, c)                                 \
  {                                                          \
    { f(a.p[0], b.p[0], c.p[0]), f(a.p[1], b.p[1], c.p[1]) } \
  }
#define ACCEL_V0(e) \
  {                 \
    { e, e }        \
  }
#else
#include "backends/cpu/kernels/vec_ext.h"
#define ACCEL_V1(f, a)                             \
  {                                                \
    { f(a.p[0]), f(a.p[1]), f(a.p[2]), f(a.p[3]) } \
  }
#define ACCEL_V2(f, a, b)                                                          \
  {                                                                                \
    { f(a.p[0], b.p[0]), f(a.p[1], b.p[1]), f(a.p[2], b.p[2]), f(a.p[3], b.p[3]) } \
  }
#define ACCEL_V3(f, a, b, c)                                                           \
  {                                                                                    \
    {                                                                                  \
      f(a.p[0], b.p[0], c.p[0]), f(a.p[1], b.p[1], c.p[1]), f(a.p[2], b.p[2], c.p[2]), \
          f(a.p[3], b.p[3], c.p[3])                                                    \
    }                                                                                  \
  }
#define ACCEL_V0(e) \
  {                 \
    { e, e, e, e }  \
  }
#endif

enum { kParts = 16 / kLanes };
struct F16x {
  V p[kParts];
};
struct I16x {
  VI p[kParts];
};
struct M16x {
  VM p[kParts];
};

// ---------------------------------------------------------------- arithmetic

static ACCEL_INLINE F16x splat(float x) {
  return ACCEL_V0(v_set(x));
}
static ACCEL_INLINE F16x operator+(F16x a, F16x b) {
  return ACCEL_V2(v_add, a, b);
}
static ACCEL_INLINE F16x operator-(F16x a, F16x b) {
  return ACCEL_V2(v_sub, a, b);
}
static ACCEL_INLINE F16x operator*(F16x a, F16x b) {
  return ACCEL_V2(v_mul, a, b);
}
static ACCEL_INLINE F16x operator/(F16x a, F16x b) {
  return ACCEL_V2(v_div, a, b);
}
// a * b + c, rounded once (level fma) or twice (base).
static ACCEL_INLINE F16x fma(F16x a, F16x b, F16x c) {
  return ACCEL_V3(v_fma, a, b, c);
}
static ACCEL_INLINE F16x sqrt(F16x a) {
  return ACCEL_V1(v_sqrt, a);
}
// a < b ? a : b and a > b ? a : b: the second operand when either is NaN or both are zeros.
static ACCEL_INLINE F16x min(F16x a, F16x b) {
  return ACCEL_V2(v_min, a, b);
}
static ACCEL_INLINE F16x max(F16x a, F16x b) {
  return ACCEL_V2(v_max, a, b);
}
static ACCEL_INLINE M16x operator<(F16x a, F16x b) {
  return ACCEL_V2(v_lt, a, b);
}
static ACCEL_INLINE M16x operator<=(F16x a, F16x b) {
  return ACCEL_V2(v_le, a, b);
}
static ACCEL_INLINE M16x operator==(F16x a, F16x b) {
  return ACCEL_V2(v_eq, a, b);
}
static ACCEL_INLINE F16x select(M16x m, F16x a, F16x b) {
  return ACCEL_V3(v_select, m, a, b);
}

static ACCEL_INLINE I16x isplat(int x) {
  return ACCEL_V0(v_iset(x));
}
static ACCEL_INLINE I16x operator+(I16x a, I16x b) {
  return ACCEL_V2(v_iadd, a, b);
}
static ACCEL_INLINE I16x operator-(I16x a, I16x b) {
  return ACCEL_V2(v_isub, a, b);
}
static ACCEL_INLINE I16x operator&(I16x a, I16x b) {
  return ACCEL_V2(v_iand, a, b);
}
static ACCEL_INLINE I16x operator|(I16x a, I16x b) {
  return ACCEL_V2(v_ior, a, b);
}
static ACCEL_INLINE I16x operator^(I16x a, I16x b) {
  return ACCEL_V2(v_ixor, a, b);
}
static ACCEL_INLINE M16x operator<(I16x a, I16x b) {
  return ACCEL_V2(v_ilt, a, b);
}
static ACCEL_INLINE M16x operator==(I16x a, I16x b) {
  return ACCEL_V2(v_ieq, a, b);
}
static ACCEL_INLINE I16x select(M16x m, I16x a, I16x b) {
  return ACCEL_V3(v_iselect, m, a, b);
}
template <int N>
static ACCEL_INLINE I16x shl(I16x a) {
  return ACCEL_V1(v_shl<N>, a);
}
template <int N>
static ACCEL_INLINE I16x shr(I16x a) {
  return ACCEL_V1(v_shr<N>, a);
}  // logical
template <int N>
static ACCEL_INLINE I16x sar(I16x a) {
  return ACCEL_V1(v_sar<N>, a);
}  // signed
static ACCEL_INLINE M16x operator&(M16x a, M16x b) {
  return ACCEL_V2(v_mand, a, b);
}
static ACCEL_INLINE M16x operator|(M16x a, M16x b) {
  return ACCEL_V2(v_mor, a, b);
}
static ACCEL_INLINE M16x operator!(M16x a) {
  return ACCEL_V1(v_mnot, a);
}

static ACCEL_INLINE I16x bits(F16x a) {
  return ACCEL_V1(v_bits, a);
}  // same bits
static ACCEL_INLINE F16x from_bits(I16x a) {
  return ACCEL_V1(v_float, a);
}  // same bits
static ACCEL_INLINE F16x to_float(I16x a) {
  return ACCEL_V1(v_from_int, a);
}  // nearest even

// One bit a lane, lane 0 lowest.
static ACCEL_INLINE u32 mask_bits(M16x m) {
  u32 all = 0;
  for (int i = 0; i < kParts; ++i) all |= v_mbits(m.p[i]) << (i * kLanes);
  return all;
}
// Bits that are set, without a call into the compiler's library where no instruction counts them.
static ACCEL_INLINE u32 bit_count(u32 m) {
#if defined(__POPCNT__)
  return (u32)__builtin_popcount(m);
#else
  m = m - (m >> 1 & 0x55555555u);
  m = (m & 0x33333333u) + (m >> 2 & 0x33333333u);
  return ((m + (m >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
#endif
}
static ACCEL_INLINE bool any(M16x m) {
  return mask_bits(m) != 0;
}
// Lanes 0 .. n - 1.
static ACCEL_INLINE M16x lanes_below(int n) {
  static const int index[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  I16x lane;
  for (int i = 0; i < kParts; ++i) lane.p[i] = v_iload(index + i * kLanes);
  return lane < isplat(n);
}

// The inverse of mask_bits.
static ACCEL_INLINE M16x lanes_of_bits(u32 m) {
#if ACCEL_ISA_avx512
  return {{(VM)m}};
#else
  static const int bit[16] = {1,     2,     4,     8,     0x10,   0x20,   0x40,   0x80,
                              0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000};
  I16x lane;
  for (int i = 0; i < kParts; ++i) lane.p[i] = v_iload(bit + i * kLanes);
  return (lane & isplat((int)m)) == lane;
#endif
}

// ---------------------------------------------------------------- memory
// load widens f16, bf16 and i8 exactly. The forms with n (0 to 16) touch n elements only; lanes
// from n on are +0.

template <class T>
static ACCEL_INLINE F16x load(const T* p) {
  F16x r;
  for (int i = 0; i < kParts; ++i) r.p[i] = v_load(p + i * kLanes);
  return r;
}
static ACCEL_INLINE void store(float* p, F16x a) {
  for (int i = 0; i < kParts; ++i) v_store(p + i * kLanes, a.p[i]);
}
// Nearest even, overflow to infinity, any NaN to 0x7e00.
static ACCEL_INLINE void store(f16* p, F16x a) {
  const F16x clean = select(a == a, a, from_bits(isplat(0x7fc00000)));
  for (int i = 0; i < kParts; ++i) v_store_f16(p + i * kLanes, clean.p[i]);
}
template <class T>
static ACCEL_INLINE F16x load_n(const T* p, int n) {
  T whole[16] = {};
  for (int i = 0; i < n; ++i) whole[i] = p[i];
  return load(whole);
}
static ACCEL_INLINE int lanes_of(int n, int part) {
  const int left = n - part * kLanes;
  return left < 0 ? 0 : left < kLanes ? left : (int)kLanes;
}
static ACCEL_INLINE F16x load_n(const float* p, int n) {
  F16x r;
  for (int i = 0; i < kParts; ++i) r.p[i] = v_loadn(p + i * kLanes, lanes_of(n, i));
  return r;
}
static ACCEL_INLINE void store_n(float* p, F16x a, int n) {
  for (int i = 0; i < kParts; ++i) v_storen(p + i * kLanes, a.p[i], lanes_of(n, i));
}
static ACCEL_INLINE void store_n(f16* p, F16x a, int n) {
  f16 whole[16];
  store(whole, a);
  for (int i = 0; i < n; ++i) p[i] = whole[i];
}
static ACCEL_INLINE I16x iload(const int* p) {
  I16x r;
  for (int i = 0; i < kParts; ++i) r.p[i] = v_iload(p + i * kLanes);
  return r;
}
static ACCEL_INLINE void istore(int* p, I16x a) {
  for (int i = 0; i < kParts; ++i) v_istore(p + i * kLanes, a.p[i]);
}

// ---------------------------------------------------------------- over the lanes
// The tree of lane16: lane i takes lane i + h for h = 8, 4, 2, 1; the result is lane 0. sums16(v)
// is the vector whose lane j is sum16(v[j]).

#include "backends/cpu/kernels/vec_fold.h"

static ACCEL_INLINE float sum16(F16x a) {
  const V4 s = fold_add(a);
  return (s[0] + s[2]) + (s[1] + s[3]);
}
static ACCEL_INLINE float max2(float a, float b) {
  return a > b ? a : b;
}
static ACCEL_INLINE float max16(F16x a) {
  const V4 s = fold_max(a);
  return max2(max2(s[0], s[2]), max2(s[1], s[3]));
}
