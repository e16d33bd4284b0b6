// Formats of the weights of shaders/cuda/ring.h, each with its stored type W, the type P of its
// planes and what a value of them is; at() is the weight of a flat index, the slow way.
#pragma once
#include "cuda/values.h"
#include "shared/ring_tiles.h"

// ---------------------------------------------------------------- f32, f16, bf16

// widen_lanes: L neighbouring weights of shared memory, widened.
// Constants are enumerators and functions: static members would become variables of the module.
struct WeightF32 {
  typedef float W;
  typedef AsF32 P;
  DEV constexpr RingFormat format() { return {32, 0, 0}; }
  enum : u32 { kStep = 16 };
  template <int L>
  DEV void widen_lanes(const char* from, float* to) {
    u32 v[L];
    load_words<L>(from, v);
#pragma unroll
    for (int i = 0; i < L; ++i) to[i] = __uint_as_float(v[i]);
  }
  DEV float at(const W* w, const P::T*, const P::T*, u64 i, bool) { return now(w + i); }
};

struct WeightF16 {
  typedef u16 W;
  typedef AsF32 P;
  DEV constexpr RingFormat format() { return {16, 0, 0}; }
  enum : u32 { kStep = 16 };
  template <int L>
  DEV void widen_lanes(const char* from, float* to) {
    if constexpr (L == 1) {
      to[0] = f16_to_f32(*(const u16*)from);
    } else {
      u32 v[L / 2];
      load_words<L / 2>(from, v);
#pragma unroll
      for (int i = 0; i < L / 2; ++i) f16s_to_f32(v[i], to + 2 * i);
    }
  }
  DEV float at(const W* w, const P::T*, const P::T*, u64 i, bool) { return f16_to_f32(now(w + i)); }
};

struct WeightBf16 {
  typedef u16 W;
  typedef AsF32 P;
  DEV constexpr RingFormat format() { return {16, 0, 0}; }
  enum : u32 { kStep = 16 };
  template <int L>
  DEV void widen_lanes(const char* from, float* to) {
    if constexpr (L == 1) {
      to[0] = AsBf16::widen(*(const u16*)from);
    } else {
      u32 v[L / 2];
      load_words<L / 2>(from, v);
#pragma unroll
      for (int i = 0; i < L / 2; ++i) {
        to[2 * i] = __uint_as_float(v[i] << 16);
        to[2 * i + 1] = __uint_as_float(v[i] & 0xffff0000u);
      }
    }
  }
  DEV float at(const W* w, const P::T*, const P::T*, u64 i, bool) {
    return AsBf16::widen(now(w + i));
  }
};

// ---------------------------------------------------------------- int4, int8

// Codes come as floats bias() + code, made of bytes that are put into a mantissa: a conversion has
// a quarter of the rate. Of a group of 32 a thread has L lanes, so 2 L weights: code i < L is of
// the first sixteen.
//
// fma(s, code, b) is what counts. With b' = b - bias() * s, which `pair` computes, the number
// s * (bias() + code) + b' is the same before its one rounding wherever b' is exact; pair says
// where it is not, or where the sign of a zero could differ, and the stage is done the plain way.
enum Dequant { kFastAffine, kFastZeros, kPlain };

template <class Plane>
struct WeightInt4 {
  typedef u32 W;
  typedef Plane P;
  DEV constexpr RingFormat format() { return {4, 2, sizeof(typename Plane::T)}; }
  enum : u32 { kStep = 32 };
  DEV constexpr float bias() { return 128.0f; }
  template <int L>
  DEV void codes(const char* from, float* to) {  // from: of the first sixteen; + 8 the others
    if constexpr (L == 8) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const u32 v = *(const u32*)(from + 8 * half);
        spread<4>(v & 0x0f0f0f0fu, v >> 4 & 0x0f0f0f0fu, to + 8 * half);
      }
    } else {
      u32 v;
      if constexpr (L == 4) v = *(const u16*)from | u32(*(const u16*)(from + 8)) << 16;
      else v = *(const u8*)from | u32(*(const u8*)(from + 8)) << 8;
      spread<L>(v & 0x0f0f0f0fu, v >> 4 & 0x0f0f0f0fu, to);
    }
  }
  template <int Bytes>
  DEV void spread(u32 even, u32 odd, float* to) {
#pragma unroll
    for (int i = 0; i < Bytes; ++i) {
      to[2 * i] = __uint_as_float(__byte_perm(even, 0x43000000u, 0x7044 | i << 8));
      to[2 * i + 1] = __uint_as_float(__byte_perm(odd, 0x43000000u, 0x7044 | i << 8));
    }
  }
  // False: the plain way.
  DEV bool pair(float s, float o, bool zeros, float2& to) {
    if (zeros) {
      const float z = -(bias() + o);
      to = make_float2(s, z);
      return z + o == -bias() && bias() + z == -o && s != 0.0f;
    }
    const float t = bias() * s, b = o - t;
    to = make_float2(s, b);
    return b + t == o && o - b == t && __float_as_uint(o) != 0x80000000u;
  }
  template <Dequant D>
  DEV float weight(float c, float2 so, bool zeros) {
    if (D == kFastAffine) return __fmaf_rn(so.x, c, so.y);
    if (D == kFastZeros) return __fmul_rn(__fadd_rn(c, so.y), so.x);
    c = c - bias();
    if (!zeros) return __fmaf_rn(so.x, c, so.y);
    return so.x == 0.0f ? so.y : (c - so.y) * so.x;
  }
  DEV float at(const W* w, const typename P::T* scales, const typename P::T* offsets, u64 i,
               bool zeros) {
    const float2 so = make_float2(P::widen(now(scales + i / 32)), P::widen(now(offsets + i / 32)));
    return weight<kPlain>(bias() + float(now(w + i / 8) >> 4 * (i % 8) & 15), so, zeros);
  }
};

struct WeightInt8 {
  typedef signed char W;
  typedef AsF16 P;
  DEV constexpr RingFormat format() { return {8, 1, 2}; }
  enum : u32 { kStep = 32 };
  // 2^15 and 128; 257 * 2^7, so times an f16 exact.
  DEV constexpr float bias() { return 32896.0f; }
  template <int L>
  DEV void codes(const char* from, float* to) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 v[L < 4 ? 1 : L / 4];
      if constexpr (L == 2) v[0] = *(const u16*)(from + 16 * half);
      else load_words<L / 4>(from + 16 * half, v);
#pragma unroll
      for (int i = 0; i < L; ++i)
        to[half * L + i] =
            __uint_as_float(__byte_perm(v[i / 4] ^ 0x80808080u, 0x47000000u, 0x7604 | i % 4 << 4));
    }
  }
  // s * q is exact and so is the sum; only zeros of a scale that is not positive have another sign.
  DEV bool pair(float s, float, bool, float2& to) {
    to = make_float2(s, -bias() * s);
    return s > 0.0f && s < __int_as_float(0x7f800000);
  }
  template <Dequant D>
  DEV float weight(float c, float2 so, bool) {
    return D == kPlain ? so.x * (c - bias()) : __fmaf_rn(so.x, c, so.y);
  }
  DEV float at(const W* w, const P::T* scales, const P::T*, u64 i, bool) {
    return P::widen(now(scales + i / 32)) * float(now(w + i));
  }
};
