// What the kernels of attention share: which positions a row sees, where they lie in the caches,
// and a score (order attention_split128, specs/010 section 4).
#pragma once
#include "kernel.h"
#include "shared/params/attention.h"
// The words of the functions come before them.
#include "shared/math/scalar.h"

#include "shared/math/exp.h"
#include "shared/math/tanh.h"

#define BLOCK 128                     // positions, at multiples of 128
#define LEAST -3.4e38f                // no maximum yet
#define NO_ROW 0xffffffffu            // a position that the caches do not hold
#define SPLIT_WORDS(dim) ((dim) + 4)  // of a block's part: o, the maximum, the sum

struct AttentionSeen {
  uint sequence, begin, end;  // positions begin .. end - 1; both 0 for none
};

// The sequence of a row; none past the sum of the extents.
static inline uint attention_sequence(constant AttentionParams& p, device const uint* offsets,
                                      uint row) {
  if (p.form == kAttentionBatched) return row;
  if (p.form != kAttentionRagged) return 0;
  uint lo = 0, hi = p.sequences;
  while (lo < hi) {
    const uint middle = lo + (hi - lo) / 2;
    if (offsets[middle + 1] > row) hi = middle;
    else lo = middle + 1;
  }
  return lo;
}

static inline AttentionSeen attention_seen(constant AttentionParams& p, constant uint* scalars,
                                           device const uint* lengths, device const uint* extents,
                                           device const uint* offsets, uint row) {
  AttentionSeen seen;
  seen.sequence = attention_sequence(p, offsets, row);
  seen.begin = 0;
  seen.end = 0;
  if (seen.sequence >= p.sequences) return seen;
  const ulong reach = p.block ? ulong(p.max_pages) * p.block : ulong(p.capacity);
  const ulong length = min(ulong(lengths[seen.sequence]), reach);
  ulong after = length;  // the row's position and one
  if (p.form == kAttentionPrefill) after = ulong(scalars[1]) + row + 1;
  if (p.form == kAttentionRagged) {
    const ulong tokens = extents[seen.sequence], token = row - offsets[seen.sequence];
    after = length + token < tokens ? 0 : length + token + 1 - tokens;
  }
  const ulong window = ulong(p.window[1]) << 32 | p.window[0];
  const ulong begin = window && after > window ? after - window : 0, end = min(length, after);
  if (begin >= end) return seen;
  seen.begin = uint(begin);
  seen.end = uint(end);
  return seen;
}

// The row of the caches that holds position j, or NO_ROW.
static inline uint attention_row(constant AttentionParams& p, device const uint* pages,
                                 uint sequence, uint j) {
  if (!p.block) return j;
  const ulong page = pages[ulong(sequence) * p.max_pages + j / p.block];
  const ulong row = page * p.block + j % p.block;
  return row < p.capacity ? uint(row) : NO_ROW;
}

// Four neighbours, wherever an operand begins.
template <class T>
static inline bool attention_aligned(device const T* x) {
  return ulong(x) % (4 * sizeof(T)) == 0;
}
template <class T>
static inline float4 attention_load(device const T* x, bool aligned) {
  if (aligned) return float4(*(device const vec<T, 4>*)x);
  return float4(float(x[0]), float(x[1]), float(x[2]), float(x[3]));
}
static inline float4 attention_load(threadgroup const float* x) {
  return *(threadgroup const float4*)x;
}
static inline float4 attention_load(threadgroup const half* x) {
  return float4(*(threadgroup const half4*)x);
}
static inline float through_half(float x) {
  return float(half(x));
}

// From lanes i + (i + 4) + (i + 8) + (i + 12) of lane16, added as its tree does, to the score.
static inline float attention_score(float4 sum, float scale, float cap) {
  const float score = ((sum.x + sum.z) + (sum.y + sum.w)) * scale;
  return cap > 0 ? cap * math_tanh(score / cap) : score;
}

// The lanes of lane16 to their sum.
static inline float attention_fold(threadgroup const float* x) {
  const float a = (x[0] + x[8]) + (x[4] + x[12]), b = (x[1] + x[9]) + (x[5] + x[13]);
  const float c = (x[2] + x[10]) + (x[6] + x[14]), d = (x[3] + x[11]) + (x[7] + x[15]);
  return (a + c) + (b + d);
}

// The maximum passes over NaN.
static inline float attention_max(float top, float score) {
  return score > top ? score : top;
}
