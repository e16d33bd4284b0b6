// attention in its four forms, order attention_block128 (spec 010): blocks of 128 positions at
// multiples of 128. Score: lane16 over head_dim, then times scale, then capped. A block: m' =
// max(m, block max), alpha = exp(m - m'), e = exp(s - m'); l = alpha * l + (lane16 of e over
// position mod 16); o = alpha * o, then one chain o = fma(e, v, o) over ascending positions.
// Members are the (row, head) pairs of one kv head in that order; those of one sequence make a
// piece, in which neither the first nor the last position seen ever shrinks. A block of K and V is
// widened once into scratch, from wherever its pages are, and serves all members of the piece;
// positions that a member does not see are in no arithmetic of it.

enum {
  kBlock = 128,
  kMembers = 96,  // of one piece of work
#if ACCEL_ISA_avx512
  kKeys = 16,
  kTile = 4,
  kFeatures = 4,  // what fits in registers; no bit depends on them
#elif ACCEL_ISA_avx2
  kKeys = 4,
  kTile = 2,
  kFeatures = 2,
#else
  kKeys = 2,
  kTile = 2,
  kFeatures = 1,
#endif
};

// Many rows of one sequence share its blocks, so few pieces are wanted; rows of many sequences
// share nothing and are of any length.
static u32 attention_chunks(const void* params, u32 threads) {
  const AttentionParams& p = *(const AttentionParams*)params;
  const u64 units = (u64)p.rows * p.kv_heads, members = (u64)p.rows * p.heads;
  switch (p.form) {
    case kAttentionDecode:
    case kAttentionPrefill:
      if (p.rows == 1) return threads < p.heads ? p.kv_heads : p.heads;
      return chunks_of(members, 24, threads);
    default:
      return chunks_of(units < threads ? members : units, 1, threads);
  }
}

// Scratch of one thread. Rows of K, V, q and o are padded to whole vectors.
struct AttentionScratch {
  float* rows;   // [kBlock, padded] of K, then of V: one fits in the nearest cache, both do not
  float* q;      // [kMembers, padded]
  float* o;      // [kMembers, padded]
  float* e;      // [kMembers, kBlock] scores of a block, then their exponentials
  float* m;      // [kMembers]
  float* l;      // [kMembers]
  float* alpha;  // [kMembers]
  u32* sees;     // [kMembers] not 0: saw a position so far
  u32* live;     // [kBlock / 16] a bit for each position of the block that has a row of the cache
  u64* begin;    // [kMembers] the positions seen, all bits for none at all
  u64* end;      // [kMembers]
};
static u64 attention_local(const void* params) {
  const u64 padded = round_up(((const AttentionParams*)params)->head_dim, 16);
  return 4 * ((kBlock + 2 * kMembers) * padded + kMembers * (kBlock + 4) + kBlock / 16) +
         16 * kMembers;
}
static inline AttentionScratch attention_scratch(void* local, u64 padded) {
  AttentionScratch s;
  s.rows = (float*)local;
  s.q = s.rows + kBlock * padded;
  s.o = s.q + kMembers * padded;
  s.e = s.o + kMembers * padded;
  s.m = s.e + kMembers * kBlock;
  s.l = s.m + kMembers;
  s.alpha = s.l + kMembers;
  s.sees = (u32*)(s.alpha + kMembers);
  s.live = s.sees + kMembers;
  s.begin = (u64*)(s.live + kBlock / 16);
  s.end = s.begin + kMembers;
  return s;
}

// ---------------------------------------------------------------- what a row sees

struct AttentionPiece {
  const KernelArgs* a;
  const AttentionParams* p;
  u64 kv_head, first, sequence;  // first member among those of the kv head
  int members;
};

// The sequence of a row; there is none past the sum of the extents.
static u64 attention_sequence(const KernelArgs* a, const AttentionParams& p, u64 row) {
  switch (p.form) {
    case kAttentionBatched:
      return row;
    case kAttentionRagged: {
      const u32* offsets = (const u32*)a->buf[7];  // [sequences + 1]
      u64 lo = 0, hi = p.sequences;
      while (lo < hi) {
        const u64 middle = (lo + hi) / 2;
        if (offsets[middle + 1] > row) hi = middle;
        else lo = middle + 1;
      }
      return lo;
    }
    default:
      return 0;
  }
}
// One beyond the last row of the sequence that `row` belongs to.
static u64 attention_rows_end(const KernelArgs* a, const AttentionParams& p, u64 row,
                              u64 sequence) {
  switch (p.form) {
    case kAttentionBatched:
      return row + 1;
    case kAttentionRagged:
      return sequence < p.sequences ? ((const u32*)a->buf[7])[sequence + 1] : p.rows;
    default:
      return p.rows;
  }
}
static u64 attention_length(const KernelArgs* a, const AttentionParams& p, u64 sequence) {
  if (sequence >= p.sequences) return 0;
  const u64 reach = p.block ? (u64)p.max_pages * p.block : p.capacity;
  return at_most(((const u32*)a->buf[3])[sequence], reach);
}
// The row's position and one; 0 where it stands before its sequence.
static u64 attention_after(const KernelArgs* a, const AttentionParams& p, u64 row, u64 sequence,
                           u64 length) {
  switch (p.form) {
    case kAttentionPrefill:
      return (u64)a->scalar[1] + row + 1;
    case kAttentionRagged: {
      if (sequence >= p.sequences) return 0;
      const u64 tokens = ((const u32*)a->buf[5])[sequence];
      const u64 token = row - ((const u32*)a->buf[7])[sequence];
      return length + token < tokens ? 0 : length + token + 1 - tokens;
    }
    default:
      return length;
  }
}

// The positions of the block at j0 that a member sees.
static inline Range attention_seen(const AttentionScratch& w, int member, u64 j0) {
  const u64 begin = w.begin[member];
  return {begin > j0 ? begin - j0 : 0, at_most(w.end[member] - j0, kBlock)};
}
// A bit for each of the sixteen positions from j on that a member sees.
static inline u32 attention_bits(const u32* live, u64 j, Range seen) {
  u32 bits = live[j / 16];
  if (seen.lo > j) bits &= 0xffffu << (seen.lo - j);
  if (seen.hi < j + 16) bits &= (1u << (seen.hi - j)) - 1;
  return bits;
}

// ---------------------------------------------------------------- rows of the cache

// n rows, `stride` elements apart, widened to [n, padded]; the padding is +0.
template <class T>
static void stage_rows(const T* from, u64 stride, int n, u32 width, float* to) {
  const u64 padded = round_up(width, 16);
  for (int j = 0; j < n; ++j) {
    u32 c = 0;
    for (; c + 16 <= width; c += 16) store(to + j * padded + c, load(from + j * stride + c));
    if (c < width) store(to + j * padded + c, load_n(from + j * stride + c, (int)(width - c)));
  }
}
static void fill_rows(float value, u64 from, u64 to, u64 padded, float* rows) {
  for (u64 c = from * padded; c < to * padded; c += 16) store(rows + c, splat(value));
}

// Positions j0 .. j0 + n - 1 of one head of K or V into w.rows. Those without a row of the cache
// become `missing` and lose their bits of w.live. False: none has one.
template <class T>
static bool stage_block(const AttentionPiece& piece, int slot, u64 j0, int n, float missing,
                        const AttentionScratch& w) {
  const AttentionParams& p = *piece.p;
  const u64 stride = (u64)p.kv_heads * p.head_dim, padded = round_up(p.head_dim, 16);
  const T* from = (const T*)piece.a->buf[slot] + piece.kv_head * p.head_dim;
  for (int i = 0; i < kBlock / 16; ++i) w.live[i] = 0xffff;
  if (!p.block) {
    stage_rows(from + j0 * stride, stride, n, p.head_dim, w.rows);
    return true;
  }
  const u32* pages = (const u32*)piece.a->buf[4] + piece.sequence * p.max_pages;
  u64 page = j0 / p.block, at = j0 % p.block;
  bool any = false;
  for (u64 j = 0; j < (u64)n; ++page, at = 0) {
    const u64 run = at_most(p.block - at, n - j), row = (u64)pages[page] * p.block + at;
    const u64 have = row < p.capacity ? at_most(run, p.capacity - row) : 0;
    if (have) stage_rows(from + row * stride, stride, (int)have, p.head_dim, w.rows + j * padded);
    any = any || have;
    fill_rows(missing, j + have, j + run, padded, w.rows);
    for (u64 i = j + have; i < j + run; ++i) w.live[i / 16] &= ~(1u << i % 16);
    j += run;
  }
  return any;
}

// ---------------------------------------------------------------- arithmetic

// The maximum so far and of sixteen scores, without those that are not seen; NaN is passed over.
static ACCEL_INLINE F16x attention_most(F16x s, u32 bits, F16x most) {
  if (bits == 0xffff) return max(s, most);
  return max(select(lanes_of_bits(bits), s, splat(-3.4e38f)), most);
}

// Scores of one member against the staged keys that it sees, times scale; returns their maximum.
// What lies in the same sixteen but is not seen is left out by a mask.
static float attention_scores(const float* q, const float* rows, const u32* live, Range seen,
                              u64 padded, F16x scale, float* scores) {
  F16x most = splat(-3.4e38f);
  for (u64 j = seen.lo / 16 * 16; j < seen.hi; j += 16) {
    F16x dots[16];
    ACCEL_UNROLL for (int g = 0; g < 16; g += kKeys) {
      F16x acc[kKeys];
      ACCEL_UNROLL for (int i = 0; i < kKeys; ++i) acc[i] = splat(0.0f);
      const float* row = rows + (j + g) * padded;
      for (u64 c = 0; c < padded; c += 16) {
        const F16x qc = load(q + c);
        ACCEL_UNROLL for (int i = 0; i < kKeys; ++i) acc[i] =
            fma(qc, load(row + i * padded + c), acc[i]);
      }
      ACCEL_UNROLL for (int i = 0; i < kKeys; ++i) dots[g + i] = acc[i];
    }
    const F16x s = sums16(dots) * scale;
    store(scores + j, s);
    most = attention_most(s, attention_bits(live, j, seen), most);
  }
  return max16(most);
}
// The same scores capped; a pass of its own, so that calls without a cap do not pay for it.
static float attention_cap(const u32* live, Range seen, float cap, float* scores) {
  F16x most = splat(-3.4e38f);
  for (u64 j = seen.lo / 16 * 16; j < seen.hi; j += 16) {
    const F16x s = splat(cap) * math_tanh(load(scores + j) / splat(cap));
    store(scores + j, s);
    most = attention_most(s, attention_bits(live, j, seen), most);
  }
  return max16(most);
}

static inline float exp_one(float x) {
  float all[16];
  store(all, math_exp(splat(x)));
  return all[0];
}
static ACCEL_INLINE F16x through_f16(F16x x) {
  f16 half[16];
  store(half, x);
  return load(half);
}

// One member's block up to the exponentials: updates m and l, leaves e and alpha.
template <bool narrow>
static void attention_weights(const AttentionScratch& w, int member, Range seen, u64 padded,
                              F16x scale, float cap) {
  float* e = w.e + member * kBlock;
  const u32* live = w.live;
  float most = attention_scores(w.q + member * padded, w.rows, live, seen, padded, scale, e);
  if (cap > 0) most = attention_cap(live, seen, cap, e);
  const float m = max2(most, w.m[member]);
  const float alpha = exp_one(w.m[member] - m);
  F16x sum = splat(0.0f);
  u32 sees = 0;
  for (u64 j = seen.lo / 16 * 16; j < seen.hi; j += 16) {
    F16x x = math_exp(load(e + j) - splat(m));
    const u32 bits = attention_bits(live, j, seen);
    if (bits != 0xffff) x = select(lanes_of_bits(bits), x, splat(0.0f));
    sees |= bits;
    store(e + j, narrow ? through_f16(x) : x);
    sum = sum + x;
  }
  const float scaled = alpha * w.l[member];
  w.l[member] = scaled + sum16(sum);
  w.m[member] = m;
  w.alpha[member] = alpha;
  w.sees[member] |= sees;
}

// o = alpha * o (if `scaled`), then the chain over positions j0 .. j1 of the block, for R members
// and N vectors of features.
template <int R, int N>
static ACCEL_INLINE void attention_values(const AttentionScratch& w, int member, Range seen,
                                          u64 padded, u64 c, bool scaled) {
  F16x acc[R][N];
  float* o = w.o + member * padded + c;
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int i = 0; i < N; ++i) {
    acc[r][i] = load(o + r * padded + 16 * i);
    if (scaled) acc[r][i] = splat(w.alpha[member + r]) * acc[r][i];
  }
  const float *e = w.e + member * kBlock, *v = w.rows + c + seen.lo * padded;
  for (u64 j = seen.lo; j < seen.hi; ++j, v += padded) {
    F16x row[N];
    ACCEL_UNROLL for (int i = 0; i < N; ++i) row[i] = load(v + 16 * i);
    ACCEL_UNROLL for (int r = 0; r < R; ++r) {
      const F16x weight = splat(e[r * kBlock + j]);
      ACCEL_UNROLL for (int i = 0; i < N; ++i) acc[r][i] = fma(weight, row[i], acc[r][i]);
    }
  }
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int i = 0; i < N; ++i)
      store(o + r * padded + 16 * i, acc[r][i]);
}
template <int R>
static void attention_features(const AttentionScratch& w, int member, Range seen, u64 padded,
                               bool scaled) {
  u64 c = 0;
  for (; c + 16 * kFeatures <= padded; c += 16 * kFeatures)
    attention_values<R, kFeatures>(w, member, seen, padded, c, scaled);
  for (; c < padded; c += 16) attention_values<R, 1>(w, member, seen, padded, c, scaled);
}
static void attention_tile(const AttentionScratch& w, int member, int n, Range seen, u64 padded,
                           bool scaled) {
  switch (n) {
    case 1:
      return attention_features<1>(w, member, seen, padded, scaled);
    case 2:
      return attention_features<2>(w, member, seen, padded, scaled);
#if ACCEL_ISA_avx512
    case 3:
      return attention_features<3>(w, member, seen, padded, scaled);
    case 4:
      return attention_features<4>(w, member, seen, padded, scaled);
#endif
  }
}

// The staged rows of V from position j0 on, for members first .. last - 1, all of which see into
// them. Of a tile, the earlier members first see what only they do, then all see what is common,
// then the later ones the rest.
static void attention_block(const AttentionScratch& w, int first, int last, u64 j0, u64 padded) {
  for (int i = first; i < last; i += kTile) {
    const int tile = last - i < kTile ? last - i : (int)kTile;
    const Range early = attention_seen(w, i, j0), late = attention_seen(w, i + tile - 1, j0);
    const Range common = {late.lo, early.hi};
    if (common.lo >= common.hi) {
      for (int r = i; r < i + tile; ++r)
        attention_features<1>(w, r, attention_seen(w, r, j0), padded, true);
      continue;
    }
    const bool even = early.lo == late.lo;
    for (int r = i; !even && r < i + tile; ++r)
      attention_features<1>(w, r, {attention_seen(w, r, j0).lo, common.lo}, padded, true);
    attention_tile(w, i, tile, common, padded, even);
    for (int r = i + 1; r < i + tile; ++r) {
      const u64 end = attention_seen(w, r, j0).hi;
      if (end > common.hi) attention_features<1>(w, r, {common.hi, end}, padded, false);
    }
  }
}

// ---------------------------------------------------------------- a piece

template <bool narrow>
static void attention_begin(const AttentionPiece& piece, const AttentionScratch& w) {
  const AttentionParams& p = *piece.p;
  const float* q = (const float*)piece.a->buf[0];  // [rows, heads, head_dim]
  const u64 padded = round_up(p.head_dim, 16), group = p.heads / p.kv_heads;
  const u64 length = attention_length(piece.a, p, piece.sequence);
  const u64 window = (u64)p.window[1] << 32 | p.window[0];
  for (int i = 0; i < piece.members; ++i) {
    const u64 row = (piece.first + i) / group;
    const u64 head = piece.kv_head * group + (piece.first + i) % group;
    float* to = w.q + i * padded;
    stage_rows(q + (row * p.heads + head) * p.head_dim, 0, 1, p.head_dim, to);
    if (narrow)
      for (u64 c = 0; c < padded; c += 16) store(to + c, through_f16(load(to + c)));
    fill_rows(0.0f, i, i + 1, padded, w.o);
    w.m[i] = -3.4e38f;
    w.l[i] = 0.0f;
    w.sees[i] = 0;
    const u64 after = attention_after(piece.a, p, row, piece.sequence, length);
    w.end[i] = at_most(length, after);
    w.begin[i] = window && after > window ? after - window : 0;
    if (w.begin[i] >= w.end[i]) w.begin[i] = ~0ull;
  }
}

template <class T, bool narrow>
static void attention_walk(const AttentionPiece& piece, const AttentionScratch& w) {
  const AttentionParams& p = *piece.p;
  const u64 padded = round_up(p.head_dim, 16);
  const F16x scale = splat(__builtin_bit_cast(float, piece.a->scalar[0]));
  int first = 0;
  for (u64 j0 = 0; j0 < w.end[piece.members - 1]; j0 += kBlock) {
    int last = piece.members;
    while (w.end[first] <= j0) ++first;
    while (last > first && w.begin[last - 1] >= j0 + kBlock) --last;
    if (last == first) continue;
    const int rows = (int)at_most(w.end[last - 1] - j0, kBlock);
    if (!stage_block<T>(piece, 1, j0, rows, 0.0f, w)) continue;
    // Keys that fill up the last sixteen: their scores are dropped.
    fill_rows(0.0f, rows, round_up(rows, 16), padded, w.rows);
    for (int i = first; i < last; ++i)
      attention_weights<narrow>(w, i, attention_seen(w, i, j0), padded, scale, p.soft_cap);
    // A missing position has weight +0, and fma(+0, -0, o) is o for every o.
    stage_block<T>(piece, 2, j0, rows, -0.0f, w);
    attention_block(w, first, last, j0, padded);
  }
}

static void attention_end(const AttentionPiece& piece, const AttentionScratch& w) {
  const AttentionParams& p = *piece.p;
  const float* sinks = (const float*)piece.a->buf[6];  // [heads], or null
  float* out = (float*)piece.a->buf[8];                // [rows, heads, head_dim]
  const u64 padded = round_up(p.head_dim, 16), group = p.heads / p.kv_heads;
  for (int i = 0; i < piece.members; ++i) {
    const u64 row = (piece.first + i) / group;
    const u64 head = piece.kv_head * group + (piece.first + i) % group;
    float l = w.l[i], alpha = 1.0f;  // 1 times o is o
    if (sinks) {
      const float m = max2(sinks[head], w.m[i]);
      alpha = exp_one(w.m[i] - m);
      const float scaled = alpha * l;
      l = scaled + exp_one(sinks[head] - m);
    }
    float* to = out + (row * p.heads + head) * p.head_dim;
    for (u32 c = 0; c < p.head_dim; c += 16) {
      const F16x o = splat(alpha) * load(w.o + i * padded + c) / splat(l);
      store_n(to + c, w.sees[i] ? o : splat(0.0f), (int)at_most(16, p.head_dim - c));
    }
  }
}

template <class T, bool narrow>
static void attention_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const AttentionParams& p = *(const AttentionParams*)a->params;
  const u64 group = p.heads / p.kv_heads, members = p.rows * group;  // of one kv head
  // The heads of one row and kv head share its keys, so they stay together where there is a choice.
  const u64 step = n_chunks <= (u64)p.rows * p.kv_heads ? group : 1;
  const Range r = range_of(members * p.kv_heads, step, chunk, n_chunks);
  const AttentionScratch w = attention_scratch(local, round_up(p.head_dim, 16));
  for (u64 m = r.lo; m < r.hi;) {
    const u64 kv_head = m / members, first = m % members, row = first / group;
    const u64 sequence = attention_sequence(a, p, row);
    const u64 end = attention_rows_end(a, p, row, sequence) * group;
    const u64 n = at_most(at_most(end - first, r.hi - m), kMembers);
    const AttentionPiece piece = {a, &p, kv_head, first, sequence, (int)n};
    attention_begin<narrow>(piece, w);
    attention_walk<T, narrow>(piece, w);
    attention_end(piece, w);
    m += n;
  }
}
