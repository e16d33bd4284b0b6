// attention of few rows: a group takes one block of 128 positions for some heads of one row that
// share a kv head, and leaves the block's maximum, sum and values in scratch; attention_merge walks
// the blocks of a row and head in order. Order attention_split128; attention_rows has the same.
#include "attention.h"

#define SPLIT_THREADS 128
#define AHEAD 16      // elements of V that a thread asks for at once
#define UNSEEN -1.0f  // in place of a sum: a block in which nothing is seen
#define MERGED 8      // parts that a thread asks for at once

// Eight of the sixteen lanes of a position's scores, a pair of four for each head. Aligned: K is
// read four at once; a constant, so that all reads of a turn are on their way at once.
template <int HEADS>
struct SplitLanes {
  float4 v[HEADS][2];
};
template <class T, int HEADS, bool Aligned>
static inline void split_lanes(device const T* from, threadgroup const float* q, uint dim, uint t,
                               thread SplitLanes<HEADS>& lanes) {
  for (uint begin = t % 2 * 4; begin < dim; begin += 64) {
    float4 x[8];
    for (uint i = 0; i < 8; ++i)
      if (begin + 8 * i < dim) x[i] = attention_load(from + begin + 8 * i, Aligned);
    for (uint i = 0; i < 8; ++i) {
      if (begin + 8 * i >= dim) break;
      for (int h = 0; h < HEADS; ++h)
        lanes.v[h][i % 2] =
            fma(attention_load(q + h * 256 + begin + 8 * i), x[i], lanes.v[h][i % 2]);
    }
  }
}

// Scores of n positions of a block into e, [positions][HEADS]: two threads a position, each with
// eight of the sixteen lanes.
template <class T, int HEADS>
static inline void split_scores(constant AttentionParams& p, float scale, device const T* k,
                                threadgroup const float* q, threadgroup const uint* rows,
                                threadgroup float4* parts, threadgroup float* e, uint kv_head,
                                uint n, uint t) {
  const bool aligned = attention_aligned(k);
  for (uint first = 0; first < n; first += SPLIT_THREADS / 2) {
    const uint row = rows[first + t / 2];
    SplitLanes<HEADS> lanes;
    for (int h = 0; h < HEADS; ++h) lanes.v[h][0] = lanes.v[h][1] = float4(0.0f);
    device const T* from = k + (ulong(row) * p.kv_heads + kv_head) * p.head_dim;
    if (row != NO_ROW) {
      if (aligned) split_lanes<T, HEADS, true>(from, q, p.head_dim, t, lanes);
      else split_lanes<T, HEADS, false>(from, q, p.head_dim, t, lanes);
    }
    for (int h = 0; h < HEADS; ++h) parts[h * SPLIT_THREADS + t] = lanes.v[h][0] + lanes.v[h][1];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint unit = t; unit < HEADS * (SPLIT_THREADS / 2); unit += SPLIT_THREADS) {
      const uint h = unit / (SPLIT_THREADS / 2), position = unit % (SPLIT_THREADS / 2);
      threadgroup const float4* own = parts + h * SPLIT_THREADS + position * 2;
      e[(first + position) * HEADS + h] = attention_score(own[0] + own[1], scale, p.soft_cap);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// From scores to exponentials, sixteen threads a head. Returns the block's maximum; sums gets the
// lanes of the sum, found whether a lane has a position.
template <bool narrow, int HEADS>
static inline float split_weights(threadgroup const uint* rows, threadgroup float* e,
                                  threadgroup float* tops, threadgroup float* sums,
                                  threadgroup uint* found, uint heads, uint t) {
  const uint h = t / 16, lane = t % 16;
  float top = LEAST;
  uint any = 0;
  for (uint i = lane; h < heads && i < BLOCK; i += 16) {
    if (rows[i] == NO_ROW) continue;
    top = attention_max(top, e[i * HEADS + h]);
    any = 1;
  }
  tops[t] = top;
  found[t] = any;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < 16; ++i) top = attention_max(top, tops[h * 16 + i]);
  float sum = 0.0f;
  for (uint i = lane; h < heads && i < BLOCK; i += 16) {
    const float x = rows[i] == NO_ROW ? 0.0f : math_exp(e[i * HEADS + h] - top);
    e[i * HEADS + h] = narrow ? through_half(x) : x;
    sum = sum + x;
  }
  sums[t] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return top;
}

// The exponentials of all heads at one position.
template <int HEADS>
static inline void split_shares(threadgroup const float* e, thread float* to) {
  if (HEADS == 4) {
    const float4 x = attention_load(e);
    to[0] = x.x;
    to[1 % HEADS] = x.y;
    to[2 % HEADS] = x.z;
    to[3 % HEADS] = x.w;
    return;
  }
  for (int h = 0; h < HEADS; ++h) to[h] = e[h];
}

// A block's values, two features of all heads after others; no position from n on is seen. Aligned
// as in split_lanes, of two.
template <class T, int HEADS, bool Aligned>
static inline void split_values(constant AttentionParams& p, device const T* v,
                                threadgroup const uint* rows, threadgroup const float* e,
                                uint kv_head, uint heads, uint n, ulong stride, device float* part,
                                uint t) {
  const ulong pitch = ulong(p.kv_heads) * p.head_dim;
  for (uint c = 2 * t; c < p.head_dim; c += 2 * SPLIT_THREADS) {
    device const T* from = v + ulong(kv_head) * p.head_dim + c;
    float o[HEADS][2];
    for (int h = 0; h < HEADS; ++h) o[h][0] = o[h][1] = 0.0f;
    for (uint i = 0; i < n; i += AHEAD) {
      vec<T, 2> x[AHEAD];  // -0 where there is no row: its product with +0 leaves o as it is
      for (uint a = 0; a < AHEAD; ++a) {
        const uint row = rows[i + a];
        x[a] = vec<T, 2>(T(-0.0f), T(-0.0f));
        if (row == NO_ROW) continue;
        device const T* own = from + row * pitch;
        if (Aligned) x[a] = *(device const vec<T, 2>*)own;
        else x[a] = vec<T, 2>(own[0], own[1]);
      }
      for (uint a = 0; a < AHEAD; ++a) {
        float shares[HEADS];
        split_shares<HEADS>(e + (i + a) * HEADS, shares);
        for (int h = 0; h < HEADS; ++h) {
          o[h][0] = fma(shares[h], float(x[a].x), o[h][0]);
          o[h][1] = fma(shares[h], float(x[a].y), o[h][1]);
        }
      }
    }
    for (int h = 0; h < HEADS; ++h) {
      if (uint(h) >= heads) break;
      part[h * stride + c] = o[h][0];
      part[h * stride + c + 1] = o[h][1];
    }
  }
}

template <class T, bool narrow, int HEADS>
kernel GROUPS(SPLIT_THREADS, HEADS == 1 ? 7 : 4) void attention_split(
    device const float* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const uint* lengths [[buffer(3)]],
    device const uint* pages [[buffer(4)]], device const uint* extents [[buffer(5)]],
    device const uint* offsets [[buffer(7)]], constant AttentionParams& p [[buffer(PARAMS)]],
    constant uint* scalars [[buffer(SCALARS)]], device float* scratch [[buffer(SCRATCH)]],
    uint group [[threadgroup_position_in_grid]], uint t [[thread_index_in_threadgroup]]) {
  threadgroup float4 queries4[HEADS * 256 / 4];  // read four at once
  threadgroup float4 shares[HEADS * BLOCK / 4];
  threadgroup float4 parts[HEADS * SPLIT_THREADS];
  threadgroup float tops[SPLIT_THREADS], sums[SPLIT_THREADS];
  threadgroup uint found[SPLIT_THREADS], rows[BLOCK];
  threadgroup float* queries = (threadgroup float*)queries4;
  threadgroup float* e = (threadgroup float*)shares;  // [positions][HEADS]
  const uint share = p.heads / p.kv_heads, tiles = (share + HEADS - 1) / HEADS;
  const uint block = group % p.blocks, tile = group / p.blocks % tiles;
  const uint kv_head = group / p.blocks / tiles % p.kv_heads;
  const uint row = group / p.blocks / tiles / p.kv_heads;
  const uint heads = min(uint(HEADS), share - tile * HEADS);
  const ulong first = ulong(row) * p.heads + kv_head * share + tile * HEADS;  // row and head
  const AttentionSeen seen = attention_seen(p, scalars, lengths, extents, offsets, row);
  const ulong begin = (ulong(seen.begin) / BLOCK + block) * BLOCK;
  if (begin >= seen.end) return;
  for (uint i = t; i < HEADS * p.head_dim; i += SPLIT_THREADS) {
    const float x = i < heads * p.head_dim ? q[first * p.head_dim + i] : 0.0f;
    queries[i / p.head_dim * 256 + i % p.head_dim] = narrow ? through_half(x) : x;
  }
  const uint n = uint(min(seen.end - begin, ulong(BLOCK)));
  const ulong j = begin + t;
  const bool sees = j >= seen.begin && j < seen.end;
  rows[t] = sees ? attention_row(p, pages, seen.sequence, uint(j)) : NO_ROW;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  split_scores<T, HEADS>(p, as_type<float>(scalars[0]), k, queries, rows, parts, e, kv_head, n, t);
  const float top = split_weights<narrow, HEADS>(rows, e, tops, sums, found, heads, t);
  const ulong stride = ulong(p.blocks) * SPLIT_WORDS(p.head_dim);
  device float* part = scratch + first * stride + ulong(block) * SPLIT_WORDS(p.head_dim);
  if (ulong(v) % (2 * sizeof(T)) == 0)
    split_values<T, HEADS, true>(p, v, rows, e, kv_head, heads, n, stride, part, t);
  else split_values<T, HEADS, false>(p, v, rows, e, kv_head, heads, n, stride, part, t);
  if (t % 16 || t / 16 >= heads) return;
  uint any = 0;
  for (uint i = 0; i < 16; ++i) any |= found[t + i];
  device float* facts = part + t / 16 * stride + p.head_dim;
  facts[0] = top;
  facts[1] = any ? attention_fold(sums + t) : UNSEEN;
}

// One row and head a group, one feature a thread.
kernel void attention_merge(
    device const uint* lengths [[buffer(3)]], device const uint* extents [[buffer(5)]],
    device const float* sinks [[buffer(6)]], device const uint* offsets [[buffer(7)]],
    device float* out [[buffer(8)]], constant AttentionParams& p [[buffer(PARAMS)]],
    constant uint* scalars [[buffer(SCALARS)]], device const float* scratch [[buffer(SCRATCH)]],
    uint group [[threadgroup_position_in_grid]], uint d [[thread_index_in_threadgroup]]) {
  if (d >= p.head_dim) return;
  const uint row = group / p.heads, head = group % p.heads;
  const AttentionSeen seen = attention_seen(p, scalars, lengths, extents, offsets, row);
  const uint words = SPLIT_WORDS(p.head_dim);
  device const float* part = scratch + ulong(group) * p.blocks * words;
  float m = LEAST, l = 0.0f, o = 0.0f;
  bool any = false;
  const ulong first = seen.begin / BLOCK, last = (ulong(seen.end) + BLOCK - 1) / BLOCK;
  for (ulong block = first; block < last; block += MERGED, part += MERGED * words) {
    float top[MERGED], sum[MERGED], own[MERGED], before[MERGED];
    for (uint i = 0; i < MERGED; ++i) {
      const bool here = block + i < last;
      top[i] = here ? part[i * words + p.head_dim] : 0.0f;
      sum[i] = here ? part[i * words + p.head_dim + 1] : UNSEEN;
      own[i] = here ? part[i * words + d] : 0.0f;
    }
    for (uint i = 0; i < MERGED; ++i) {
      const float next = sum[i] == UNSEEN ? m : attention_max(m, top[i]);
      before[i] = math_exp(m - next);
      top[i] = math_exp(top[i] - next);
      m = next;
    }
    for (uint i = 0; i < MERGED; ++i) {
      if (sum[i] == UNSEEN) continue;
      const float kept = before[i] * l, scaled = before[i] * o;
      l = fma(top[i], sum[i], kept);
      o = fma(top[i], own[i], scaled);
      any = true;
    }
  }
  if (p.has_sinks) {
    const float next = attention_max(m, sinks[head]), before = math_exp(m - next);
    const float kept = before * l;
    l = kept + math_exp(sinks[head] - next);
    o = before * o;
  }
  out[ulong(group) * p.head_dim + d] = any ? o / l : 0.0f;
}

#define SPLIT(name, ...) \
  template [[host_name(  \
      name)]] [[kernel]] decltype(attention_split<__VA_ARGS__>) attention_split<__VA_ARGS__>;
SPLIT("attention_f32_split", float, false, 4)
SPLIT("attention_f32_split1", float, false, 1)
SPLIT("attention_f16_split", half, false, 4)
SPLIT("attention_f16_split1", half, false, 1)
SPLIT("attention_f16_narrow_split", half, true, 4)
SPLIT("attention_f16_narrow_split1", half, true, 1)
