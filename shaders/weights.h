// Sources of weights, dequantised once in f32: f16 and bf16 widened; s * q; fma(s, code, b), or
// (code - z) * s, each operation rounded, but z where s is 0. Whole: no group or block straddles
// two rows of K.
//
// at(i) is the weight of a flat index. row(start) is a row along K: four(k) gives the weights k ..
// k + 3 and +0 behind K, pair(k) those of k and of k + 16, all of them inside K; k is a multiple of
// four, in pair() one below 16 behind a multiple of 32. eight(k), in rows of whole groups, gives
// codes as they are. Operands are aligned to their elements alone: elements are read one by one,
// four at once where the address allows it. flag() is what all rows of a weight have in common and
// pair() asks for; a loop gives it as a constant, so that there is no branch between its reads.
#pragma once
#include "product.h"

template <class T>
static inline bool fours_are_aligned(device const T* w, uint K) {
  return K % 4 == 0 && ulong(w) % (4 * sizeof(T)) == 0;
}
static inline void widen_four(device const float* w, bool wide, thread float* to) {
  if (wide) {
    const float4 v = *(device const float4*)w;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    return;
  }
  for (uint i = 0; i < 4; ++i) to[i] = w[i];
}
static inline void widen_four(device const half* w, bool wide, thread float* to) {
  if (wide) {
    const half4 v = *(device const half4*)w;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    return;
  }
  for (uint i = 0; i < 4; ++i) to[i] = widen(w[i]);
}
static inline void widen_four(device const ushort* w, bool wide, thread float* to) {
  if (wide) {
    const ushort4 v = *(device const ushort4*)w;
    to[0] = widen(v.x), to[1] = widen(v.y), to[2] = widen(v.z), to[3] = widen(v.w);
    return;
  }
  for (uint i = 0; i < 4; ++i) to[i] = widen(w[i]);
}
static inline void widen_four(device const char* w, bool wide, thread float* to) {
  if (wide) {
    const char4 v = *(device const char4*)w;
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    return;
  }
  for (uint i = 0; i < 4; ++i) to[i] = float(w[i]);
}

// ---------------------------------------------------------------- f32, f16 and bf16

template <class W>
struct FloatRow {
  device const W* w;
  uint K;
  bool wide;
  inline void four(uint k, thread float* to) const {
    if (k + 4 <= K) return widen_four(w + k, wide, to);
    for (uint i = 0; i < 4; ++i) to[i] = k + i < K ? widen(w[k + i]) : 0.0f;
  }
  inline bool flag() const { return wide; }
  inline void pair(uint k, bool flag, thread float* to) const {
    widen_four(w + k, flag, to);
    widen_four(w + k + 16, flag, to + 4);
  }
};
template <class W>
struct FloatWeights {
  typedef W Stored;
  typedef float Plane;
  typedef FloatRow<W> Row;
  device const W* w;
  uint K;
  static inline FloatWeights of(device const W* w, device const float*, device const float*,
                                constant ProductParams& p) {
    return {w, p.K};
  }
  inline float at(ulong i) const { return widen(w[i]); }
  inline Row row(ulong start) const { return {w + start, K, fours_are_aligned(w + start, K)}; }
};

// ---------------------------------------------------------------- int4

static inline float int4_weight(float s, float offset, bool zeros, uint code) {
  const float c = float(code);
  if (!zeros) return fma(s, c, offset);
  return s == 0.0f ? offset : (c - offset) * s;
}

// first_code and first: where the row begins in its first word and in its first group, 0 where
// groups are whole.
template <class P, bool Whole>
struct Int4Row {
  device const uint* codes;
  device const P* scales;
  device const P* offsets;
  uint K, shift;
  bool zeros;
  uint first_code, first;
  inline bool flag() const { return zeros; }
  inline float one(uint k, bool flag) const {
    const uint i = first_code + k, g = (first + k) >> shift;
    return int4_weight(widen(scales[g]), widen(offsets[g]), flag,
                       codes[i >> 3] >> (4 * (i & 7)) & 15);
  }
  inline void word(uint k, float s, float offset, bool flag, thread float* to) const {
    const uint half_word = codes[k >> 3] >> (4 * (k & 7));
    to[0] = int4_weight(s, offset, flag, half_word & 15);
    to[1] = int4_weight(s, offset, flag, half_word >> 4 & 15);
    to[2] = int4_weight(s, offset, flag, half_word >> 8 & 15);
    to[3] = int4_weight(s, offset, flag, half_word >> 12 & 15);
  }
  inline void four(uint k, thread float* to) const {
    if (Whole) return word(k, widen(scales[k >> shift]), widen(offsets[k >> shift]), zeros, to);
    for (uint i = 0; i < 4; ++i) to[i] = k + i < K ? one(k + i, zeros) : 0.0f;
  }
  inline void pair(uint k, bool flag, thread float* to) const {
    if (Whole) {
      const float s = widen(scales[k >> shift]), offset = widen(offsets[k >> shift]);
      word(k, s, offset, flag, to);
      word(k + 16, s, offset, flag, to + 4);
      return;
    }
    for (uint i = 0; i < 4; ++i) to[i] = one(k + i, flag);
    for (uint i = 0; i < 4; ++i) to[4 + i] = one(k + 16 + i, flag);
  }
  inline void eight(uint k, thread float* to) const {
    const uint codes_of = codes[k >> 3];
    for (uint i = 0; i < 8; ++i) to[i] = float(codes_of >> (4 * i) & 15);
  }
  inline float scale(uint g) const { return widen(scales[g]); }
  // What is added to s * code.
  inline float offset(uint g, float s) const {
    const float o = widen(offsets[g]);
    return !zeros || s == 0.0f ? o : -o * s;
  }
};
template <class P, bool Whole>
struct Int4Weights {
  typedef uint Stored;
  typedef P Plane;
  typedef Int4Row<P, Whole> Row;
  device const uint* codes;
  device const P* scales;
  device const P* offsets;
  uint K, shift;
  bool zeros;
  static inline Int4Weights of(device const uint* codes, device const P* scales,
                               device const P* offsets, constant ProductParams& p) {
    return {codes,       scales, offsets, p.K, p.group == 32 ? 5u : p.group == 64 ? 6u : 7u,
            p.zeros != 0};
  }
  static inline bool has_offsets() { return true; }
  inline float at(ulong i) const {
    const ulong g = i >> shift;
    return int4_weight(widen(scales[g]), widen(offsets[g]), zeros,
                       codes[i >> 3] >> (4 * (uint(i) & 7)) & 15);
  }
  inline Row row(ulong start) const {
    const ulong g = start >> shift;
    return {codes + (start >> 3),
            scales + g,
            offsets + g,
            K,
            shift,
            zeros,
            uint(start) & 7,
            uint(start) & ((1u << shift) - 1)};
  }
};

// ---------------------------------------------------------------- int8

template <bool Whole>
struct Int8Row {
  device const char* q;
  device const half* scales;
  uint K, first;
  bool wide;
  inline float one(uint k) const { return widen(scales[(first + k) >> 5]) * float(q[k]); }
  inline bool flag() const { return wide; }
  inline void scaled(uint k, float s, bool flag, thread float* to) const {
    widen_four(q + k, flag, to);
    for (uint i = 0; i < 4; ++i) to[i] = s * to[i];
  }
  inline void four(uint k, thread float* to) const {
    if (Whole) return scaled(k, widen(scales[k >> 5]), wide, to);
    for (uint i = 0; i < 4; ++i) to[i] = k + i < K ? one(k + i) : 0.0f;
  }
  inline void pair(uint k, bool flag, thread float* to) const {
    if (Whole) {
      const float s = widen(scales[k >> 5]);
      scaled(k, s, flag, to);
      scaled(k + 16, s, flag, to + 4);
      return;
    }
    for (uint i = 0; i < 4; ++i) to[i] = one(k + i);
    for (uint i = 0; i < 4; ++i) to[4 + i] = one(k + 16 + i);
  }
  inline void eight(uint k, thread float* to) const {
    widen_four(q + k, wide, to);
    widen_four(q + k + 4, wide, to + 4);
  }
  inline float scale(uint g) const { return widen(scales[g]); }
  inline float offset(uint, float) const { return 0.0f; }
};
template <bool Whole>
struct Int8Weights {
  typedef char Stored;
  typedef half Plane;
  typedef Int8Row<Whole> Row;
  device const char* q;
  device const half* scales;
  uint K;
  static inline Int8Weights of(device const char* q, device const half* scales, device const half*,
                               constant ProductParams& p) {
    return {q, scales, p.K};
  }
  static inline bool has_offsets() { return false; }
  inline float at(ulong i) const { return widen(scales[i >> 5]) * float(q[i]); }
  inline Row row(ulong start) const {
    return {q + start, scales + (start >> 5), K, uint(start) & 31, fours_are_aligned(q + start, K)};
  }
};
