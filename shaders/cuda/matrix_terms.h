// Activations as terms that a matrix instruction takes, in the order matrix16 (specs/011 section
// 1). An f32 is the sum of three: its first bits, those of what is left, and the rest; each cut
// off, so that every difference is exact. By weights of f16 the terms are TF32, by those of bf16
// bf16. An f16 is one term: of f16 by weights of f16, of TF32, which holds both types, by those of
// bf16. All terms of an instruction's k meet one sum, the smallest first.
//
// In TF32 sixteen k are two instructions of eight. What a thread has of a row of 16-bit values are
// the pairs 2t and 2t + 8, so instruction j has k = 8j + 2t at place t and 8j + 2t + 1 at t + 4.
#pragma once
#include "cuda/mma.h"
#include "cuda/ring_weights.h"

// ---------------------------------------------------------------- weights

template <class F>
struct MatrixWeight;
template <>
struct MatrixWeight<WeightF16> {
  enum : bool { kThree = false, kOne = true };  // terms of f32, that of f16: of the weight's type
  DEV void multiply(float* d, const u32* a, const u32* b) { mma_f16(d, a, b); }
  DEV void widen(u32 v, float* to) { f16s_to_f32(v, to); }
};
template <>
struct MatrixWeight<WeightBf16> {
  enum : bool { kThree = true, kOne = false };
  DEV void multiply(float* d, const u32* a, const u32* b) { mma_bf16(d, a, b); }
  DEV void widen(u32 v, float* to) {
    to[0] = __uint_as_float(v << 16), to[1] = __uint_as_float(v & 0xffff0000u);
  }
};

// ---------------------------------------------------------------- activations

#define TF32_BITS 0xffffe000u
#define BF16_BITS 0xffff0000u

DEV u32 cut(float& v, u32 bits) {
  const u32 first = __float_as_uint(v) & bits;
  v = v - __uint_as_float(first);
  return first;
}

// Of eight rows of x at a step.
template <class F, class X>
struct MatrixTerms {
  typedef MatrixWeight<F> W;
  enum : u32 {
    kTerms = sizeof(X) == 2 ? 1 : 3,
    kOwn = kTerms == 3 ? W::kThree : W::kOne,  // the weight's instruction
    kWords = kOwn ? 2 : 4,
    kStep = 16 * sizeof(X),  // bytes of a row at a step
  };
  u32 v[kTerms][kWords];

  // Where this thread reads: an offset from the first row; behind row `last` the last again, whose
  // results nobody takes.
  DEV u32 offset(u32 lane, u32 last, u32 pitch) {
    if (sizeof(X) == 2) return min(lane % 8, last) * pitch + lane / 8 % 2 * 16;
    return min(lane / 4, last) * pitch + lane % 4 * 8;
  }
  __forceinline__ void load(const char* at) {
    float f[4];  // of k = 2t, 2t + 1, 2t + 8, 2t + 9
    if constexpr (sizeof(X) == 2) {
      u32 pairs[2];
      load_matrices2(shared_at(at), pairs);
      if constexpr (kOwn) {
        v[0][0] = pairs[0], v[0][1] = pairs[1];
      } else {
        f16s_to_f32(pairs[0], f), f16s_to_f32(pairs[1], f + 2);
#pragma unroll
        for (int i = 0; i < 4; ++i) v[0][i] = __float_as_uint(f[i]);
      }
    } else {
      const float2 a = *(const float2*)at, b = *(const float2*)(at + 32);
      f[0] = a.x, f[1] = a.y, f[2] = b.x, f[3] = b.y;
#pragma unroll
      for (int term = 2; term >= 0; --term) terms_of(f, term);
    }
  }
  __forceinline__ void terms_of(float* f, int term) {
    u32 first[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) first[i] = cut(f[i], kOwn ? BF16_BITS : TF32_BITS);
    if constexpr (kOwn) {
      v[term][0] = __byte_perm(first[0], first[1], 0x7632);
      v[term][1] = __byte_perm(first[2], first[3], 0x7632);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[term][i] = first[i];
    }
  }
};

// ---------------------------------------------------------------- a step

// Sixteen k: w of Mt times sixteen columns as they were loaded, x of Nt times eight rows.
template <class T, int Mt, int Nt>
DEV void add_step(float (&sums)[Mt][Nt][4], const u32 (&w)[Mt][4], const T (&x)[Nt]) {
  if constexpr (T::kOwn) {
#pragma unroll
    for (int term = 0; term < int(T::kTerms); ++term)
#pragma unroll
      for (int j = 0; j < Nt; ++j)
#pragma unroll
        for (int i = 0; i < Mt; ++i) T::W::multiply(sums[i][j], w[i], x[j].v[term]);
    return;
  } else {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      u32 wide[Mt][4];
#pragma unroll
      for (int i = 0; i < Mt; ++i)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          float two[2];
          T::W::widen(w[i][2 * half + r], two);
          wide[i][r] = __float_as_uint(two[0]), wide[i][2 + r] = __float_as_uint(two[1]);
        }
#pragma unroll
      for (int term = 0; term < int(T::kTerms); ++term)
#pragma unroll
        for (int j = 0; j < Nt; ++j)
#pragma unroll
          for (int i = 0; i < Mt; ++i) mma_tf32(sums[i][j], wide[i], x[j].v[term] + 2 * half);
    }
  }
}
