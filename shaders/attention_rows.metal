// attention of many rows: a group takes a tile of members, which are pairs of row and head of one
// kv head, rows outside, and walks the blocks of 128 positions; K and V come in tiles that all
// members share. Order attention_split128: a block by itself in registers, then merged.
#include "attention.h"

#define THREADS 128
#define MEMBERS 16    // 8 from 129 features on
#define E_STRIDE 136  // of a member's row of exponentials; keeps rows in banks of their own
#define TILE_BYTES 10240
#define LOADS 8  // of four elements that a thread asks for at once
#define OWN 4    // members of one thread where values are summed

// What the members of a group and its threads share.
template <class T>
struct RowsShared {
  threadgroup float* q;  // [members][head_dim + 4]
  threadgroup float* e;  // [members][E_STRIDE]
  threadgroup T* tile;   // [positions][head_dim + 4]
  threadgroup uint* rows;
  threadgroup float* slots;  // [2][THREADS]
  threadgroup uint* found;   // [THREADS]
  threadgroup uint* begin;   // [MEMBERS] the positions seen
  threadgroup uint* end;
  threadgroup float* m;
  threadgroup float* l;
  threadgroup float* before;  // factors of the merge
  threadgroup float* share;
  threadgroup uint* sees;  // bit 0: in this block; bit 1: so far
};
struct RowsShape {
  uint members, positions, dim, quads, stride;  // of a tile
};

static inline RowsShape rows_shape(uint dim, uint bytes) {
  RowsShape s;
  s.members = dim <= 128 ? MEMBERS : MEMBERS / 2;
  s.positions = BLOCK;
  while (s.positions * dim * bytes > 8192) s.positions /= 2;
  s.dim = dim;
  s.quads = dim / 4;
  s.stride = dim + 4;
  return s;
}

// Positions first .. first + positions - 1 of the block from K or V into the tile; one that the
// caches do not hold is -0, whose product with +0 leaves every sum as it is. Aligned: four are read
// at once; a constant, so that all reads are on their way at once.
template <class T, bool Aligned>
static inline void rows_load(RowsShape s, RowsShared<T> w, device const T* from, ulong pitch,
                             uint first, uint t) {
  uint r = t / s.quads, c = t % s.quads;
  const uint down = THREADS / s.quads, right = THREADS % s.quads;
  while (r < s.positions) {
    vec<T, 4> x[LOADS];
    uint at[LOADS];
    for (int i = 0; i < LOADS; ++i) {
      at[i] = r * s.stride + c * 4;
      x[i] = vec<T, 4>(T(-0.0f));
      const uint row = r < s.positions ? w.rows[first + r] : NO_ROW;
      if (r >= s.positions) at[i] = NO_ROW;
      if (row != NO_ROW) {
        device const T* own = from + row * pitch + c * 4;
        if (Aligned) x[i] = *(device const vec<T, 4>*)own;
        else x[i] = vec<T, 4>(own[0], own[1], own[2], own[3]);
      }
      r += down;
      c += right;
      if (c >= s.quads) {
        c -= s.quads;
        ++r;
      }
    }
    for (int i = 0; i < LOADS; ++i)
      if (at[i] != NO_ROW) *(threadgroup vec<T, 4>*)(w.tile + at[i]) = x[i];
  }
}

// Scores of R members times R positions a thread.
template <class T, int R>
static inline void rows_scores(RowsShape s, RowsShared<T> w, uint first, float scale, float cap,
                               uint t) {
  const uint positions = s.positions / R, members = s.members / R;
  for (uint unit = t; unit < positions * members; unit += THREADS) {
    const uint j = unit % positions, i = unit / positions;
    float4 lanes[R][R][4];
    for (int a = 0; a < R; ++a)
      for (int b = 0; b < R; ++b)
        for (int g = 0; g < 4; ++g) lanes[a][b][g] = float4(0.0f);
    for (uint c = 0; c < s.dim; c += 16)
      for (int g = 0; g < 4; ++g) {
        if (g == 2 && c + 8 >= s.dim) break;
        float4 q[R];
        for (int a = 0; a < R; ++a)
          q[a] = attention_load(w.q + (i + a * members) * s.stride + c + 4 * g);
        for (int b = 0; b < R; ++b) {
          const float4 k = attention_load(w.tile + (j + b * positions) * s.stride + c + 4 * g);
          for (int a = 0; a < R; ++a) lanes[a][b][g] = fma(q[a], k, lanes[a][b][g]);
        }
      }
    for (int a = 0; a < R; ++a)
      for (int b = 0; b < R; ++b)
        w.e[(i + a * members) * E_STRIDE + first + j + b * positions] = attention_score(
            (lanes[a][b][0] + lanes[a][b][2]) + (lanes[a][b][1] + lanes[a][b][3]), scale, cap);
  }
}

// One score to its exponential, which is returned; what the member does not see becomes +0.
template <class T, bool narrow>
static inline float rows_weight(RowsShared<T> w, threadgroup float* e, uint i, ulong block,
                                ulong begin, ulong end, float top) {
  const bool sees = w.rows[i] != NO_ROW && block + i >= begin && block + i < end;
  const float x = sees ? math_exp(*e - top) : 0.0f;
  *e = narrow ? through_half(x) : x;
  return x;
}

// From scores to exponentials, eight threads a member, each with lanes i and i + 8; then m, l and
// the factors of the merge.
template <class T, bool narrow>
static inline void rows_weights(RowsShape s, RowsShared<T> w, ulong block, uint t) {
  const uint member = t / 8, lane = t % 8;
  const bool here = member < s.members;
  const ulong begin = here ? w.begin[member] : 0, end = here ? w.end[member] : 0;
  threadgroup float* e = w.e + member * E_STRIDE;
  float top = LEAST;
  uint any = 0;
  for (uint i = lane; here && i < BLOCK; i += 8) {
    if (w.rows[i] == NO_ROW || block + i < begin || block + i >= end) continue;
    top = attention_max(top, e[i]);
    any = 1;
  }
  w.slots[t] = top;
  w.found[t] = any;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = 0; i < 8; ++i) {
    top = attention_max(top, w.slots[member * 8 + i]);
    any |= w.found[member * 8 + i];
  }
  float low = 0.0f, high = 0.0f;
  for (uint i = lane; here && i < BLOCK; i += 16) {
    low = low + rows_weight<T, narrow>(w, e + i, i, block, begin, end, top);
    high = high + rows_weight<T, narrow>(w, e + i + 8, i + 8, block, begin, end, top);
  }
  w.slots[THREADS + t] = low + high;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (here && lane == 0) {
    threadgroup const float* x = w.slots + THREADS + t;
    const float sum = ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
    if (any) {
      const float m = w.m[member], next = attention_max(m, top);
      const float before = math_exp(m - next), share = math_exp(top - next);
      const float kept = before * w.l[member];
      w.l[member] = fma(share, sum, kept);
      w.m[member] = next;
      w.before[member] = before;
      w.share[member] = share;
    }
    w.sees[member] = any ? 3 : w.sees[member] & 2;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

// Where a thread sums values: four features of up to OWN members, `ways` apart.
struct RowsOwn {
  uint ways, first, c;
};

// The tile's part of the block's values. A position that a member does not see is in no sum of it.
template <class T, int N>
static inline void rows_values(RowsShape s, RowsShared<T> w, ulong block, uint first, RowsOwn at,
                               thread float4* own) {
  uint lo[N], hi[N], all_lo = 0, all_hi = s.positions;
  for (int k = 0; k < N; ++k) {
    const uint member = at.first + k * at.ways;
    const bool here = at.first < at.ways && member < s.members;
    const ulong begin = here ? w.begin[member] : 0, end = here ? w.end[member] : 0;
    const ulong from = block + first;
    lo[k] = begin > from ? uint(min(begin - from, ulong(s.positions))) : 0;
    hi[k] = end > from ? uint(min(end - from, ulong(s.positions))) : 0;
    if (!here) continue;
    all_lo = max(all_lo, lo[k]);
    all_hi = min(all_hi, hi[k]);
  }
  if (at.first >= at.ways) return;
  if (all_lo == 0 && all_hi == s.positions) {
    threadgroup const float* e[N];  // a member that there is not repeats the last one
    for (int k = 0; k < N; ++k)
      e[k] = w.e + min(at.first + k * at.ways, s.members - 1) * E_STRIDE + first;
    for (uint j = 0; j < s.positions; j += 4) {
      float4 x[N], v[4];
      for (int k = 0; k < N; ++k) x[k] = attention_load(e[k] + j);
      for (int i = 0; i < 4; ++i) v[i] = attention_load(w.tile + (j + i) * s.stride + at.c);
      for (int k = 0; k < N; ++k) {
        own[k] = fma(float4(x[k].x), v[0], own[k]);
        own[k] = fma(float4(x[k].y), v[1], own[k]);
        own[k] = fma(float4(x[k].z), v[2], own[k]);
        own[k] = fma(float4(x[k].w), v[3], own[k]);
      }
    }
    return;
  }
  threadgroup const float* e = w.e + at.first * E_STRIDE + first;
  for (uint j = 0; j < s.positions; ++j) {
    const float4 v = attention_load(w.tile + j * s.stride + at.c);
    for (int k = 0; k < N; ++k)
      if (j >= lo[k] && j < hi[k]) own[k] = fma(float4(e[k * at.ways * E_STRIDE + j]), v, own[k]);
  }
}

// The pointers of a call that a walk needs.
template <class T>
struct RowsCall {
  device const T* k;
  device const T* v;
  device const uint* pages;
  device const float* sinks;
  device float* out;
};

// One block: scores, exponentials, values, and the merge into o.
template <class T, bool narrow>
static inline void rows_block(constant AttentionParams& p, RowsShape s, RowsShared<T> w,
                              RowsCall<T> call, ulong block, uint lo, uint hi, float scale,
                              uint kv_head, RowsOwn at, thread float4* o, uint t) {
  const ulong pitch = ulong(p.kv_heads) * s.dim;
  device const T* k = call.k + ulong(kv_head) * s.dim;
  device const T* v = call.v + ulong(kv_head) * s.dim;
  const bool k_aligned = attention_aligned(k), v_aligned = attention_aligned(v);
  for (uint first = 0; first < BLOCK; first += s.positions) {
    if (block + first >= hi || block + first + s.positions <= lo) continue;
    if (k_aligned) rows_load<T, true>(s, w, k, pitch, first, t);
    else rows_load<T, false>(s, w, k, pitch, first, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (s.positions * s.members >= 4 * THREADS)
      rows_scores<T, 2>(s, w, first, scale, p.soft_cap, t);
    else rows_scores<T, 1>(s, w, first, scale, p.soft_cap, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  rows_weights<T, narrow>(s, w, block, t);
  float4 own[OWN];
  for (int i = 0; i < OWN; ++i) own[i] = float4(0.0f);
  for (uint first = 0; first < BLOCK; first += s.positions) {
    if (block + first >= hi || block + first + s.positions <= lo) continue;
    if (v_aligned) rows_load<T, true>(s, w, v, pitch, first, t);
    else rows_load<T, false>(s, w, v, pitch, first, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (s.members <= 2 * at.ways) rows_values<T, OWN / 2>(s, w, block, first, at, own);
    else rows_values<T, OWN>(s, w, block, first, at, own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  for (int i = 0; i < OWN; ++i) {
    const uint member = at.first + i * at.ways;
    if (at.first >= at.ways || member >= s.members || !(w.sees[member] & 1)) continue;
    const float4 kept = w.before[member] * o[i];
    o[i] = fma(float4(w.share[member]), own[i], kept);
  }
}

// Members `from` .. `to` - 1 of the tile, which are of one sequence; first: the tile's first member
// among all of the kv head.
template <class T, bool narrow>
static inline void rows_walk(constant AttentionParams& p, RowsShape s, RowsShared<T> w,
                             RowsCall<T> call, ulong first, uint from, uint to, uint sequence,
                             float scale, uint kv_head, uint t) {
  RowsOwn at;
  at.ways = THREADS / s.quads;
  at.first = t / s.quads;
  at.c = t % s.quads * 4;
  uint lo = 0xffffffffu, hi = 0;
  for (uint i = from; i < to; ++i) {
    if (w.begin[i] < w.end[i]) lo = min(lo, w.begin[i]);
    hi = max(hi, w.end[i]);
  }
  float4 o[OWN];
  for (int i = 0; i < OWN; ++i) o[i] = float4(0.0f);
  for (ulong block = lo / BLOCK * ulong(BLOCK); block < hi; block += BLOCK) {
    const ulong j = block + t;
    const bool inside = j >= lo && j < hi;
    w.rows[t] = inside ? attention_row(p, call.pages, sequence, uint(j)) : NO_ROW;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    rows_block<T, narrow>(p, s, w, call, block, lo, hi, scale, kv_head, at, o, t);
    threadgroup_barrier(mem_flags::mem_threadgroup);
  }
  const uint group = p.heads / p.kv_heads;
  for (int i = 0; i < OWN; ++i) {
    const uint member = at.first + i * at.ways;
    if (at.first >= at.ways || member < from || member >= to) continue;
    const uint row = uint((first + member) / group);
    const uint head = kv_head * group + uint((first + member) % group);
    float l = w.l[member], before = 1.0f;  // 1 times o is o
    if (p.has_sinks) {
      const float sink = call.sinks[head], next = attention_max(w.m[member], sink);
      before = math_exp(w.m[member] - next);
      const float kept = before * l;
      l = kept + math_exp(sink - next);
    }
    const float4 x = before * o[i] / l;
    device float* out = call.out + (ulong(row) * p.heads + head) * s.dim + at.c;
    for (int c = 0; c < 4; ++c) out[c] = w.sees[member] & 2 ? x[c] : 0.0f;
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

template <class T, bool narrow>
kernel GROUPS(THREADS, 2) void attention_rows(
    device const float* q [[buffer(0)]], device const T* k [[buffer(1)]],
    device const T* v [[buffer(2)]], device const uint* lengths [[buffer(3)]],
    device const uint* pages [[buffer(4)]], device const uint* extents [[buffer(5)]],
    device const float* sinks [[buffer(6)]], device const uint* offsets [[buffer(7)]],
    device float* out [[buffer(8)]], constant AttentionParams& p [[buffer(PARAMS)]],
    constant uint* scalars [[buffer(SCALARS)]], uint group [[threadgroup_position_in_grid]],
    uint t [[thread_index_in_threadgroup]]) {
  // What is read four at once is aligned for that.
  threadgroup float4 queries4[MEMBERS * 132 / 4], e4[MEMBERS * E_STRIDE / 4];
  threadgroup float4 tile[TILE_BYTES / 16];
  threadgroup float slots[2 * THREADS];
  threadgroup float* queries = (threadgroup float*)queries4;
  threadgroup float* e = (threadgroup float*)e4;
  threadgroup uint rows[BLOCK], found[THREADS];
  threadgroup uint begin[MEMBERS], end[MEMBERS], sees[MEMBERS];
  threadgroup float m[MEMBERS], l[MEMBERS], before[MEMBERS], share[MEMBERS];
  const RowsShape s = rows_shape(p.head_dim, sizeof(T));
  RowsShared<T> w = {
      queries, e, (threadgroup T*)tile, rows, slots, found, begin, end, m, l, before, share, sees};
  RowsCall<T> call = {k, v, pages, sinks, out};
  const uint heads = p.heads / p.kv_heads, kv_head = group % p.kv_heads;
  const ulong all = ulong(p.rows) * heads;
  // The last rows of a prefill see most, so they begin.
  const ulong tiles = (all + s.members - 1) / s.members;
  const ulong first = (tiles - 1 - group / p.kv_heads) * s.members;
  const uint n = uint(min(all - first, ulong(s.members)));
  for (uint i = t; i < s.members * s.dim; i += THREADS) {
    const uint member = i / s.dim, c = i % s.dim;
    float x = 0.0f;
    if (member < n) {
      const ulong row = (first + member) / heads, head = kv_head * heads + (first + member) % heads;
      x = q[(row * p.heads + head) * s.dim + c];
    }
    queries[member * s.stride + c] = narrow ? through_half(x) : x;
  }
  for (uint from = 0, to; from < n; from = to) {
    const uint row = uint((first + from) / heads);
    const uint sequence = attention_sequence(p, offsets, row);
    ulong last = p.rows;  // one beyond the sequence's rows
    if (p.form == kAttentionBatched) last = row + 1;
    if (p.form == kAttentionRagged && sequence < p.sequences) last = offsets[sequence + 1];
    to = uint(min(ulong(n), last * heads - first));
    if (t < MEMBERS) {
      AttentionSeen seen = {0, 0, 0};
      if (t >= from && t < to)
        seen = attention_seen(p, scalars, lengths, extents, offsets, uint((first + t) / heads));
      begin[t] = seen.begin;
      end[t] = seen.end;
      sees[t] = 0;
      m[t] = LEAST;
      l[t] = 0.0f;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    rows_walk<T, narrow>(p, s, w, call, first, from, to, sequence, as_type<float>(scalars[0]),
                         kv_head, t);
  }
}

#define ROWS(name, ...) \
  template [[host_name( \
      name)]] [[kernel]] decltype(attention_rows<__VA_ARGS__>) attention_rows<__VA_ARGS__>;
ROWS("attention_f32_rows", float, false)
ROWS("attention_f16_rows", half, false)
ROWS("attention_f16_narrow_rows", half, true)
