// attention of few rows, order attention_split128: what attention_split.metal does, with a block's
// K and V on their way at once. A group of the plain kernel asks for 4 to 8 KB at a time and waits
// a dozen times for memory, which is all of its time; this one waits once for K and once for V,
// whose copies run while the scores are computed.
//
// Same operands, places in scratch and bits. f16 caches, head_dim a multiple of 8 up to 256.
#include "cuda/values.h"
#include "shared/math/scalar.h"
#include "shared/params/attention.h"

#include "shared/math/exp.h"
#include "shared/math/tanh.h"

#define BLOCK 128
#define HEADS 4
#define WARPS (BLOCK / 32)
#define LEAST -3.4e38f
#define NO_ROW 0xffffffffu
#define UNSEEN -1.0f  // in place of a sum: a block in which nothing is seen
#define WORDS(dim) ((dim) + 4)
#define ALL 0xffffffffu

DEV float larger(float top, float score) {
  return score > top ? score : top;
}

// ---------------------------------------------------------------- what a row sees

struct Seen {
  u32 sequence, begin, end;
};
DEV Seen seen_of(const AttentionParams& p, const u32* scalars, const u32* lengths,
                 const u32* extents, const u32* offsets, u32 row) {
  Seen seen = {0, 0, 0};
  if (p.form == kAttentionBatched) seen.sequence = row;
  if (p.form == kAttentionRagged) {
    u32 lo = 0, hi = p.sequences;
    while (lo < hi) {
      const u32 middle = lo + (hi - lo) / 2;
      if (now(offsets + middle + 1) > row) hi = middle;
      else lo = middle + 1;
    }
    seen.sequence = lo;
  }
  if (seen.sequence >= p.sequences) return seen;
  const u64 reach = p.block ? u64(p.max_pages) * p.block : u64(p.capacity);
  const u64 given = now(lengths + seen.sequence), length = given < reach ? given : reach;
  u64 after = length;
  if (p.form == kAttentionPrefill) after = u64(now(scalars + 1)) + row + 1;
  if (p.form == kAttentionRagged) {
    const u64 tokens = now(extents + seen.sequence), token = row - now(offsets + seen.sequence);
    after = length + token < tokens ? 0 : length + token + 1 - tokens;
  }
  const u64 window = u64(p.window[1]) << 32 | p.window[0];
  const u64 begin = window && after > window ? after - window : 0;
  const u64 end = length < after ? length : after;
  if (begin >= end) return seen;
  seen.begin = u32(begin), seen.end = u32(end);
  return seen;
}
DEV u32 row_of(const AttentionParams& p, const u32* pages, u32 sequence, u32 j) {
  if (!p.block) return j;
  const u64 page = now(pages + u64(sequence) * p.max_pages + j / p.block);
  const u64 row = page * p.block + j % p.block;
  return row < p.capacity ? u32(row) : NO_ROW;
}

// ---------------------------------------------------------------- the parts

struct Room {
  float queries[HEADS * 256];
  float shares[BLOCK * HEADS];  // [positions][heads]
  float raw[BLOCK * HEADS];     // scores, then exponentials that are not narrowed
  float tops[WARPS][HEADS];
  u32 rows[BLOCK];
  u32 found[WARPS];
};

DEV u32 pitch_of(u32 head_dim) {
  return head_dim * 2 + 16;  // positions that are read together lie in other banks
}

// A block's rows of K or V, each in a place of its own; -0 where there is none.
DEV void copy_rows(const u16* cache, char* to, const u32* rows, u32 n, u32 head_dim, u64 apart,
                   u32 t) {
  const u32 pieces = head_dim / 8, pitch = pitch_of(head_dim);
  const bool aligned = u64(cache) % 16 == 0;
  for (u32 id = t; id < n * pieces; id += BLOCK) {
    const u32 i = id / pieces, at = id % pieces * 16, row = rows[i];
    char* own = to + i * pitch + at;
    const u16* from = cache + row * apart + at / 2;
    if (row == NO_ROW) {
      *(uint4*)own = make_uint4(0x80008000u, 0x80008000u, 0x80008000u, 0x80008000u);
    } else if (aligned) {
      copy16(shared_at(own), from);
    } else {
      for (int j = 0; j < 8; ++j) ((u16*)own)[j] = now(from + j);
    }
  }
  commit_copies();
}

// Two threads a position, each with eight of the sixteen lanes; two positions of a thread.
DEV void put_scores(const char* ks, Room& room, u32 head_dim, float scale, float cap, u32 t) {
  const u32 pitch = pitch_of(head_dim), half = t % 2 * 4;
  float lanes[HEADS][2][2][4];
#pragma unroll
  for (int h = 0; h < HEADS; ++h)
#pragma unroll
    for (int i = 0; i < 16; ++i) lanes[h][i / 8][i / 4 % 2][i % 4] = 0.0f;
  const char* from = ks + t / 2 * pitch + half * 2;
#pragma unroll 2
  for (u32 d = 0; d < head_dim; d += 16) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      if (d + 8 * part >= head_dim) break;
      float x[2][4];
#pragma unroll
      for (int a = 0; a < 2; ++a) {
        u32 v[2];
        load_words<2>(from + a * 64 * pitch + (d + 8 * part) * 2, v);
        f16s_to_f32(v[0], x[a]), f16s_to_f32(v[1], x[a] + 2);
      }
#pragma unroll
      for (int h = 0; h < HEADS; ++h) {
        u32 y[4];
        load_words<4>((const char*)(room.queries + h * 256 + d + 8 * part + half), y);
#pragma unroll
        for (int a = 0; a < 2; ++a)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            lanes[h][a][part][i] = __fmaf_rn(__uint_as_float(y[i]), x[a][i], lanes[h][a][part][i]);
      }
    }
  }
#pragma unroll
  for (int a = 0; a < 2; ++a)
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
      float s[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[i] = lanes[h][a][0][i] + lanes[h][a][1][i];
        s[i] = s[i] + __shfl_xor_sync(ALL, s[i], 1);
      }
      const float score = ((s[0] + s[2]) + (s[1] + s[3])) * scale;
      if (t % 2 == h / 2)  // each of the two writes half of the heads
        room.raw[(t / 2 + a * 64) * HEADS + h] = cap > 0 ? cap * math_tanh(score / cap) : score;
    }
}

// From scores to exponentials: a thread has the positions t / 4 + 32 i of head t % 4.
template <bool Narrow>
DEV void put_weights(Room& room, u32 t) {
  float score[4];
  bool here[4];
  float top = LEAST;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    here[i] = room.rows[t / 4 + 32 * i] != NO_ROW;
    score[i] = room.raw[t + 128 * i];
    if (here[i]) top = larger(top, score[i]);
  }
#pragma unroll
  for (int h = 4; h < 32; h *= 2) top = larger(top, __shfl_xor_sync(ALL, top, h));
  const u32 found = __ballot_sync(ALL, room.rows[t] != NO_ROW);
  if (t % 32 < 4) room.tops[t / 32][t % 4] = top;
  if (t % 32 == 0) room.found[t / 32] = found;
  __syncthreads();
  top = LEAST;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) top = larger(top, room.tops[i][t % 4]);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float x = here[i] ? math_exp(score[i] - top) : 0.0f;
    room.raw[t + 128 * i] = x;
    room.shares[t + 128 * i] = Narrow ? through_f16(x) : x;
  }
}

// Two features of two heads a thread, a chain over the n positions each.
DEV void put_values(const char* vs, const Room& room, u32 n, u32 head_dim, u32 heads, u64 stride,
                    float* part, u32 t) {
  const u32 pairs = head_dim / 2, pitch = pitch_of(head_dim);
  for (u32 unit = t; unit < 2 * pairs; unit += BLOCK) {
    const u32 c = unit % pairs * 2, h = unit / pairs * 2;
    if (h >= heads) break;
    float o[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll 8
    for (u32 i = 0; i < n; ++i) {
      float x[2];
      f16s_to_f32(*(const u32*)(vs + c * 2 + i * pitch), x);
      const float2 w = *(const float2*)(room.shares + h + i * HEADS);
      o[0][0] = __fmaf_rn(w.x, x[0], o[0][0]), o[0][1] = __fmaf_rn(w.x, x[1], o[0][1]);
      o[1][0] = __fmaf_rn(w.y, x[0], o[1][0]), o[1][1] = __fmaf_rn(w.y, x[1], o[1][1]);
    }
#pragma unroll
    for (int a = 0; a < 2; ++a) {
      if (h + a >= heads) break;
      float* to = part + (h + a) * stride + c;
      to[0] = o[a][0], to[1] = o[a][1];
    }
  }
}

// The maxima, and the sums in lane16 over the positions: head t / 16, lane t % 16.
DEV void put_sums(const Room& room, u32 head_dim, u32 heads, u64 stride, float* part, u32 t) {
  if (t >= 16 * HEADS) return;
  const u32 h = t / 16, lane = t % 16;
  float sum = 0.0f;
#pragma unroll
  for (u32 i = 0; i < BLOCK; i += 16) sum = sum + room.raw[(i + lane) * HEADS + h];
#pragma unroll
  for (int s = 8; s > 0; s /= 2) sum = sum + __shfl_xor_sync(ALL, sum, s);
  u32 any = 0;
  float most = LEAST;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) any |= room.found[i], most = larger(most, room.tops[i][h]);
  if (lane || h >= heads) return;
  part[h * stride + head_dim] = most;
  part[h * stride + head_dim + 1] = any ? sum : UNSEEN;
}

template <bool Narrow>
DEV void split(const float* q, const u16* k, const u16* v, const u32* lengths, const u32* pages,
               const u32* extents, const u32* offsets, const AttentionParams& p, const u32* scalars,
               float* scratch) {
  __shared__ __align__(16) Room room;
  extern __shared__ __align__(128) char caches[];
  const u32 t = threadIdx.x, D = p.head_dim;
  const u32 share = p.heads / p.kv_heads, tiles = (share + HEADS - 1) / HEADS;
  const u32 block = blockIdx.x % p.blocks, tile = blockIdx.x / p.blocks % tiles;
  const u32 kv_head = blockIdx.x / p.blocks / tiles % p.kv_heads;
  const u32 row = blockIdx.x / p.blocks / tiles / p.kv_heads;
  const u32 heads = min(u32(HEADS), share - tile * HEADS);
  const u64 first = u64(row) * p.heads + kv_head * share + tile * HEADS;  // row and head

  const Seen seen = seen_of(p, scalars, lengths, extents, offsets, row);
  const u64 begin = (u64(seen.begin) / BLOCK + block) * BLOCK;
  if (begin >= seen.end) return;
  const u32 n = u32(seen.end - begin < BLOCK ? seen.end - begin : BLOCK);
  const u64 j = begin + t;
  const bool sees = j >= seen.begin && j < seen.end;
  room.rows[t] = sees ? row_of(p, pages, seen.sequence, u32(j)) : NO_ROW;
  __syncthreads();
  char* const vs = caches + BLOCK * pitch_of(D);
  const u64 apart = u64(p.kv_heads) * D;
  copy_rows(k + u64(kv_head) * D, caches, room.rows, n, D, apart, t);
  copy_rows(v + u64(kv_head) * D, vs, room.rows, n, D, apart, t);
  for (u32 i = t; i < HEADS * D; i += BLOCK) {
    const float x = i < heads * D ? now(q + first * D + i) : 0.0f;
    room.queries[i / D * 256 + i % D] = Narrow ? through_f16(x) : x;
  }
  const float scale = __uint_as_float(now(scalars));
  wait_copies<1>();
  __syncthreads();
  put_scores(caches, room, D, scale, p.soft_cap, t);
  __syncthreads();
  put_weights<Narrow>(room, t);
  wait_copies<0>();
  __syncthreads();
  const u64 stride = u64(p.blocks) * WORDS(D);
  float* part = scratch + first * stride + u64(block) * WORDS(D);
  put_values(vs, room, n, D, heads, stride, part, t);
  put_sums(room, D, heads, stride, part, t);
}

// ---------------------------------------------------------------- the merge

#define MERGE_GROUP 128
#define AHEAD 32  // parts on their way at once

// What each step of the chain multiplies by depends on the maxima alone: they are found side by
// side, so the chain has two operations a block.
struct Step {
  float before, weight, sum, seen;
};

// Of the blocks base .. base + some - 1, behind a maximum m; returns the maximum behind them.
DEV float put_steps(const float* from, u32 words, u32 head_dim, u32 some, float m, Step* steps,
                    float* warps, u32 t) {
  float top = LEAST, sum = UNSEEN;
  if (t < some) top = now(from + t * words + head_dim), sum = now(from + t * words + head_dim + 1);
  const bool here = sum != UNSEEN;
  float most = here ? larger(LEAST, top) : LEAST;  // of all up to this one
#pragma unroll
  for (int h = 1; h < 32; h *= 2) {
    const float other = __shfl_up_sync(ALL, most, h);
    if (t % 32 >= h) most = larger(other, most);
  }
  float before = __shfl_up_sync(ALL, most, 1);
  __syncthreads();
  if (t % 32 == 31) warps[t / 32] = most;
  __syncthreads();
  float carry = m;
  for (u32 i = 0; i < t / 32; ++i) carry = larger(carry, warps[i]);
  before = t % 32 == 0 ? carry : larger(carry, before);
  most = larger(carry, most);
  steps[t] = {math_exp(before - most), math_exp(top - most), sum, here ? 1.0f : 0.0f};
  for (int i = 0; i < MERGE_GROUP / 32; ++i) m = larger(m, warps[i]);
  __syncthreads();
  return m;
}

struct Merged {
  float m, l, o;
  bool any;
};
// One feature of a row and head; `mine`: this thread has one.
DEV Merged merged(const float* parts, u32 words, u32 head_dim, u32 count, u32 d, bool mine,
                  Step* steps, float* warps) {
  Merged r = {LEAST, 0.0f, 0.0f, false};
  for (u32 base = 0; base < count; base += MERGE_GROUP) {
    const u32 some = min(u32(MERGE_GROUP), count - base);
    const float* from = parts + u64(base) * words;
    float own[AHEAD];
    const auto load = [&](u32 i0) {
#pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        own[i] = mine && i0 + i < some ? now(from + (i0 + i) * words + d) : 0.0f;
    };
    load(0);
    r.m = put_steps(from, words, head_dim, some, r.m, steps, warps, threadIdx.x);
    for (u32 i0 = 0; i0 < some; i0 += AHEAD) {
      if (i0) load(i0);
#pragma unroll
      for (int i = 0; i < AHEAD; ++i) {
        if (i0 + i >= some) break;
        const Step s = steps[i0 + i];
        if (s.seen == 0.0f) continue;
        const float kept = s.before * r.l, scaled = s.before * r.o;
        r.l = __fmaf_rn(s.weight, s.sum, kept);
        r.o = __fmaf_rn(s.weight, own[i], scaled);
        r.any = true;
      }
    }
  }
  return r;
}

// ---------------------------------------------------------------- entries

#define SPLIT_ENTRY(name, Narrow)                                                                 \
  extern "C" __global__ void __launch_bounds__(BLOCK) name(                                       \
      const float* b0, const u16* b1, const u16* b2, const u32* b3, const u32* b4, const u32* b5, \
      const u32* b7, const __grid_constant__ AttentionParams b27, const u32* b28, float* b29) {   \
    split<Narrow>(b0, b1, b2, b3, b4, b5, b7, b27, b28, b29);                                     \
  }
SPLIT_ENTRY(attention_f16_staged_split, false)
SPLIT_ENTRY(attention_f16_narrow_staged_split, true)

// lengths, extents, sinks, offsets, out, scalars, scratch.
extern "C" __global__ void __launch_bounds__(MERGE_GROUP)
    attention_staged_merge(const u32* b3, const u32* b5, const float* b6, const u32* b7, float* b8,
                           const __grid_constant__ AttentionParams b27, const u32* b28,
                           const float* b29) {
  __shared__ __align__(16) Step steps[MERGE_GROUP];
  __shared__ float warps[MERGE_GROUP / 32];
  const AttentionParams& p = b27;
  const u32 D = p.head_dim, row = blockIdx.x / p.heads, head = blockIdx.x % p.heads;
  const Seen seen = seen_of(p, b28, b3, b5, b7, row);
  const float* parts = b29 + u64(blockIdx.x) * p.blocks * WORDS(D);
  const u32 first = seen.begin / BLOCK;
  const u32 count = u32((u64(seen.end) + BLOCK - 1) / BLOCK) - first;
  for (u32 d0 = 0; d0 < D; d0 += MERGE_GROUP) {
    const u32 d = d0 + threadIdx.x;
    Merged r = merged(parts, WORDS(D), D, count, d, d < D, steps, warps);
    if (p.has_sinks) {
      const float sink = now(b6 + head), next = larger(r.m, sink), before = math_exp(r.m - next);
      const float kept = before * r.l;
      r.l = kept + math_exp(sink - next);
      r.o = before * r.o;
    }
    if (d < D) b8[u64(blockIdx.x) * D + d] = r.any ? r.o / r.l : 0.0f;
  }
}
