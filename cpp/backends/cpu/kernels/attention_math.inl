// The arithmetic of attention over one block of positions: scores, their exponentials and what is
// added to the values, for members that share a head of the cache. A member is a pair of row and
// query head.

// Tile: members that share each row of the cache that is loaded; with the other sizes, what fits in
// registers. No bit depends on them.
#if ACCEL_ISA_avx512
enum { kTile = 4, kKeys = 4, kSpan = 2, kFeatures = 4, kRaise = 8 };
#elif ACCEL_ISA_avx2
enum { kTile = 2, kKeys = 2, kSpan = 1, kFeatures = 2, kRaise = 2 };
#else
enum { kTile = 2, kKeys = 2, kSpan = 1, kFeatures = 1, kRaise = 1 };
#endif
// Positions; members of one piece of work; how many positions ahead the cache is fetched.
enum { kBlock = 128, kMembers = 192, kAhead = 16 };

// Scratch of one thread. Rows of q, o and widened rows of the cache are padded to whole vectors.
struct AttentionScratch {
  float* rows;     // [kBlock, padded] of V, or [padded, kBlock] of K
  float* q;        // [kMembers, padded]
  float* o;        // [kMembers, padded]
  float* e;        // [kMembers, kBlock] scores of a block, then their exponentials
  float* m;        // [kMembers]
  float* l;        // [kMembers]
  float* alpha;    // [kMembers]
  u32* sees;       // [kMembers] not 0: saw a position so far
  u32* live;       // [kBlock / 16] a bit for each position of the block with a row of the cache
  u64* begin;      // [kMembers] the positions seen, all bits for none at all
  u64* end;        // [kMembers]
  const void** k;  // [kBlock] where the rows of the block lie
  const void** v;  // [kBlock]
  const void** staged;  // [kBlock] the rows of `rows`
  float* missing;       // a row of -0 in either type
};
static u64 attention_local(const void* params) {
  const u64 padded = round_up(((const AttentionParams*)params)->head_dim, 16);
  return 4 * ((kBlock + 2 * kMembers) * padded + kMembers * (kBlock + 4) + kBlock / 16) +
         16 * kMembers + 24 * kBlock + 16 * kAhead + 4 * 256;
}
static inline AttentionScratch attention_scratch(void* local, u64 padded) {
  AttentionScratch s;
  s.rows = (float*)local;
  s.q = s.rows + kBlock * padded;
  s.o = s.q + kMembers * padded;
  s.e = s.o + kMembers * padded;
  s.missing = s.e + kMembers * kBlock;
  s.m = s.missing + 256;
  s.l = s.m + kMembers;
  s.alpha = s.l + kMembers;
  s.sees = (u32*)(s.alpha + kMembers);
  s.live = s.sees + kMembers;
  s.begin = (u64*)(s.live + kBlock / 16);
  s.end = s.begin + kMembers;
  s.k = (const void**)(s.end + kMembers);
  s.v = s.k + kBlock + kAhead;
  s.staged = s.v + kBlock + kAhead;
  for (int j = 0; j < kBlock; ++j) s.staged[j] = s.rows + j * padded;
  return s;
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

// Rows of one head of the cache: `rows[j] + at` holds `width` elements of position j.
template <class S>
struct AttentionRows {
  const S* const* rows;
  u64 at;
  u32 width;
};

// The cache is read in pieces of rows that stand apart, which the machine does not foresee by
// itself.
template <class S>
static ACCEL_INLINE void attention_fetch(const S* from, u32 width) {
  for (u32 c = 0; c < width; c += 64 / sizeof(S)) __builtin_prefetch(from + c);
}

// ---------------------------------------------------------------- scores

// The lane16 of sixteen positions, kKeys at a time: step g takes the accumulators of positions
// attention_key(g, i). The tree is folded as far as a step allows, to free the registers.
#if ACCEL_ISA_avx512
enum { kSums = 4 };
static constexpr int attention_key(int g, int i) {
  return g + (i == 0 ? 0 : i == 1 ? 8 : i == 2 ? 4 : 12);
}
static ACCEL_INLINE void attention_keep(F16x* sums, int g, const F16x* acc) {
  sums[g].p[0] =
      add_quarters(add_halves(acc[0].p[0], acc[1].p[0]), add_halves(acc[2].p[0], acc[3].p[0]));
}
static ACCEL_INLINE F16x attention_fold(const F16x* sums) {
  const V low = add_pairs(sums[0].p[0], sums[1].p[0]), high = add_pairs(sums[2].p[0], sums[3].p[0]);
  const V all = add_neighbours(low, high);
  return {{_mm512_shuffle_f32x4(all, all, 0xd8)}};
}
#else
enum { kSums = 16 };
static constexpr int attention_key(int g, int i) {
  return g * kKeys + i;
}
static ACCEL_INLINE void attention_keep(F16x* sums, int g, const F16x* acc) {
  for (int i = 0; i < kKeys; ++i) sums[g * kKeys + i] = acc[i];
}
static ACCEL_INLINE F16x attention_fold(const F16x* sums) {
  return sums16(sums);
}
#endif

template <int R>
static ACCEL_INLINE void attention_dots(const float* q, u64 padded, F16x x, int i,
                                        F16x (*acc)[kKeys]) {
  ACCEL_UNROLL for (int r = 0; r < R; ++r) acc[r][i] = fma(load(q + r * padded), x, acc[r][i]);
}
// Scores of R members against sixteen positions from the rows as they lie, times scale. What lies
// in the sixteen but is not seen is left out by later masks.
template <class S, int R>
static ACCEL_INLINE void attention_sixteen(const float* q, u64 padded, const S* const* rows, u64 at,
                                           u32 width, F16x scale, float* e, u64 stride) {
  F16x sums[R][kSums];
  ACCEL_UNROLL for (int g = 0; g < 16 / kKeys; ++g) {
    F16x acc[R][kKeys];
    const S* row[kKeys];
    ACCEL_UNROLL for (int i = 0; i < kKeys; ++i) {
      row[i] = rows[attention_key(g, i)] + at;
      attention_fetch(rows[kAhead + g * kKeys + i] + at, width);
      ACCEL_UNROLL for (int r = 0; r < R; ++r) acc[r][i] = splat(0.0f);
    }
    u32 c = 0;
    for (; c + 16 <= width; c += 16)
      ACCEL_UNROLL for (int i = 0; i < kKeys; ++i)
          attention_dots<R>(q + c, padded, load(row[i] + c), i, acc);
    if (c < width)
      for (int i = 0; i < kKeys; ++i)
        attention_dots<R>(q + c, padded, load_n(row[i] + c, (int)(width - c)), i, acc);
    ACCEL_UNROLL for (int r = 0; r < R; ++r) attention_keep(sums[r], g, acc[r]);
  }
  ACCEL_UNROLL for (int r = 0; r < R; ++r) store(e + r * stride, attention_fold(sums[r]) * scale);
}
// The same for rows of kHeld vectors and at most kHolders members, whose q stays in registers: each
// row that is loaded then costs one load, and not one more for each member.
#if ACCEL_ISA_avx512
enum { kHeld = 4, kHolders = 3 };
#else
enum { kHeld = 4, kHolders = 0 };
#endif
template <class S, int R>
static ACCEL_INLINE void attention_held(const F16x (*q)[kHeld], const S* const* rows, u64 at,
                                        F16x scale, float* e, u64 stride) {
  F16x sums[R][kSums];
  ACCEL_UNROLL for (int g = 0; g < 16 / kKeys; ++g) {
    F16x acc[R][kKeys];
    ACCEL_UNROLL for (int i = 0; i < kKeys; ++i) {
      const S* row = rows[attention_key(g, i)] + at;
      attention_fetch(rows[kAhead + g * kKeys + i] + at, 16 * kHeld);
      ACCEL_UNROLL for (int r = 0; r < R; ++r) acc[r][i] = splat(0.0f);
      ACCEL_UNROLL for (int c = 0; c < kHeld; ++c) {
        const F16x x = load(row + 16 * c);
        ACCEL_UNROLL for (int r = 0; r < R; ++r) acc[r][i] = fma(q[r][c], x, acc[r][i]);
      }
    }
    ACCEL_UNROLL for (int r = 0; r < R; ++r) attention_keep(sums[r], g, acc[r]);
  }
  ACCEL_UNROLL for (int r = 0; r < R; ++r) store(e + r * stride, attention_fold(sums[r]) * scale);
}
template <class S, int R>
static void attention_direct(const float* q, u64 padded, AttentionRows<S> k, Range seen, F16x scale,
                             float* e, u64 stride) {
  if constexpr (R <= kHolders) {
    if (k.width == 16 * kHeld) {
      F16x held[R][kHeld];
      ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int c = 0; c < kHeld; ++c)
          held[r][c] = load(q + r * padded + 16 * c);
      for (u64 j = seen.lo / 16 * 16; j < seen.hi; j += 16)
        attention_held<S, R>(held, k.rows + j, k.at, scale, e + j, stride);
      return;
    }
  }
  for (u64 j = seen.lo / 16 * 16; j < seen.hi; j += 16)
    attention_sixteen<S, R>(q, padded, k.rows + j, k.at, k.width, scale, e + j, stride);
}

// The lanes of lane16 that `q` and `keys` start at, for R members and P times sixteen positions,
// from keys turned so that positions are neighbours.
template <int R, int P>
static ACCEL_INLINE void attention_lane(const float* q, const float* keys, u64 padded,
                                        F16x (*t)[P]) {
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int p = 0; p < P; ++p) t[r][p] =
      splat(0.0f);
  for (u64 c = 0; c < padded; c += 16) {
    F16x key[P];
    ACCEL_UNROLL for (int p = 0; p < P; ++p) key[p] = load(keys + c * kBlock + 16 * p);
    ACCEL_UNROLL for (int r = 0; r < R; ++r) {
      const F16x x = splat(q[r * padded + c]);
      ACCEL_UNROLL for (int p = 0; p < P; ++p) t[r][p] = fma(x, key[p], t[r][p]);
    }
  }
}
template <int R, int P>
static ACCEL_INLINE void attention_add(F16x (*a)[P], F16x (*b)[P]) {
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int p = 0; p < P; ++p) a[r][p] =
      a[r][p] + b[r][p];
}
template <int R, int P>
static ACCEL_INLINE void attention_lanes(const float* q, const float* keys, u64 padded, int lane,
                                         F16x (*sum)[P]) {
  F16x a[R][P], b[R][P];
  attention_lane<R, P>(q + lane, keys + lane * kBlock, padded, sum);
  attention_lane<R, P>(q + lane + 8, keys + (lane + 8) * kBlock, padded, a);
  attention_add<R, P>(sum, a);
  attention_lane<R, P>(q + lane + 4, keys + (lane + 4) * kBlock, padded, a);
  attention_lane<R, P>(q + lane + 12, keys + (lane + 12) * kBlock, padded, b);
  attention_add<R, P>(a, b);
  attention_add<R, P>(sum, a);
}
// Scores of R members and P times sixteen positions from turned keys: the tree of lane16 is walked
// lane by lane, so it costs its additions alone.
template <int R, int P>
static ACCEL_INLINE void attention_turned_at(const float* q, const float* rows, u64 padded,
                                             F16x scale, float* e) {
  F16x total[R][P], sum[R][P];
  attention_lanes<R, P>(q, rows, padded, 0, total);
  attention_lanes<R, P>(q, rows, padded, 2, sum);
  attention_add<R, P>(total, sum);
  F16x odd[R][P];
  attention_lanes<R, P>(q, rows, padded, 1, odd);
  attention_lanes<R, P>(q, rows, padded, 3, sum);
  attention_add<R, P>(odd, sum);
  attention_add<R, P>(total, odd);
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int p = 0; p < P; ++p)
      store(e + r * kBlock + 16 * p, total[r][p] * scale);
}
template <int R>
static void attention_turned(const float* q, const float* rows, u64 padded, Range seen, F16x scale,
                             float* e) {
  u64 j = seen.lo / 16 * 16;
  for (; j + 16 * (kSpan - 1) < seen.hi; j += 16 * kSpan)
    attention_turned_at<R, kSpan>(q, rows + j, padded, scale, e + j);
  if (kSpan > 1 && j < seen.hi) attention_turned_at<R, 1>(q, rows + j, padded, scale, e + j);
}

// ---------------------------------------------------------------- exponentials

// The maximum so far and of sixteen scores, without those that are not seen; NaN is passed over.
static ACCEL_INLINE F16x attention_most(F16x s, u32 bits, F16x most) {
  if (bits == 0xffff) return max(s, most);
  return max(select(lanes_of_bits(bits), s, splat(-3.4e38f)), most);
}
static ACCEL_INLINE F16x through_f16(F16x x) {
  f16 half[16];
  store(half, x);
  return load(half);
}
static inline float exp_one(float x) {
  float all[16];
  store(all, exp_below(splat(x)));
  return all[0];
}

// Positions from the first on of which the member sees whole vectors: one beyond the last of them.
static ACCEL_INLINE u64 attention_whole(Range seen, bool all) {
  return all && seen.lo == 0 ? seen.hi / 16 * 16 : 0;
}
// The largest lane, or the lane16, of each member of a tile: lane i is that of v[i].
#if ACCEL_ISA_avx512
static_assert(kTile == 4);
static ACCEL_INLINE F16x attention_quarters(V all) {
  return {{_mm512_maskz_compress_ps(0x1111, all)}};
}
static ACCEL_INLINE F16x attention_largest(const F16x* v) {
  const V a = v[0].p[0], b = v[1].p[0], c = v[2].p[0], d = v[3].p[0];
  const V ab = v_max(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
  const V cd = v_max(_mm512_shuffle_f32x4(c, d, 0x44), _mm512_shuffle_f32x4(c, d, 0xee));
  V all = v_max(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
  all = v_max(all, _mm512_permute_ps(all, 0x4e));
  return attention_quarters(v_max(all, _mm512_permute_ps(all, 0xb1)));
}
static ACCEL_INLINE F16x attention_totals(const F16x* v) {
  const V ab = add_halves(v[0].p[0], v[1].p[0]), cd = add_halves(v[2].p[0], v[3].p[0]);
  V all = add_quarters(ab, cd);
  all = v_add(all, _mm512_permute_ps(all, 0x4e));
  return attention_quarters(v_add(all, _mm512_permute_ps(all, 0xb1)));
}
#else
static ACCEL_INLINE F16x attention_largest(const F16x* v) {
  float lanes[16] = {};
  for (int i = 0; i < kTile; ++i) lanes[i] = max16(v[i]);
  return load(lanes);
}
static ACCEL_INLINE F16x attention_totals(const F16x* v) {
  float lanes[16] = {};
  for (int i = 0; i < kTile; ++i) lanes[i] = sum16(v[i]);
  return load(lanes);
}
#endif

// The lanes of the largest of the scores that a member sees.
static ACCEL_INLINE F16x attention_peak(const float* scores, const u32* live, Range seen,
                                        bool all) {
  F16x most = splat(-3.4e38f);
  const u64 whole = attention_whole(seen, all);
  for (u64 j = 0; j < whole; j += 16) most = max(load(scores + j), most);
  for (u64 j = whole ? whole : seen.lo / 16 * 16; j < seen.hi; j += 16)
    most = attention_most(load(scores + j), attention_bits(live, j, seen), most);
  return most;
}
// exp(score - m) of N whole vectors into e, and their sum onto `sum`. One test serves all of them.
template <bool narrow, int N>
static ACCEL_INLINE F16x attention_raise_whole(const float* scores, float* e, F16x m, F16x sum) {
  F16x x[N];
  ACCEL_UNROLL for (int i = 0; i < N; ++i) x[i] = load(scores + 16 * i) - m;
  M16x plain = below_plain(x[0]);
  ACCEL_UNROLL for (int i = 1; i < N; ++i) plain = plain & below_plain(x[i]);
  if (__builtin_expect(mask_bits(plain) != 0xffff, 0)) {
    for (int i = 0; i < N; ++i) {
      const F16x y = below_rare(load(scores + 16 * i) - m);
      store(e + 16 * i, narrow ? through_f16(y) : y);
      sum = sum + y;
    }
    return sum;
  }
  ACCEL_UNROLL for (int i = 0; i < N; ++i) {
    const F16x y = below_fast(x[i]);
    store(e + 16 * i, narrow ? through_f16(y) : y);
    sum = sum + y;
  }
  return sum;
}
// exp(score - m) into e; returns the sum's lanes.
template <bool narrow>
static ACCEL_INLINE F16x attention_raise(const float* scores, float* e, float m, const u32* live,
                                         Range seen, bool all, u32* sees) {
  F16x sum = splat(0.0f);
  const u64 whole = attention_whole(seen, all);
  u64 j = 0;
  for (; j + 16 * kRaise <= whole; j += 16 * kRaise)
    sum = attention_raise_whole<narrow, kRaise>(scores + j, e + j, splat(m), sum);
  for (; j < whole; j += 16)
    sum = attention_raise_whole<narrow, 1>(scores + j, e + j, splat(m), sum);
  if (whole) *sees |= 1;
  for (j = whole ? whole : seen.lo / 16 * 16; j < seen.hi; j += 16) {
    const u32 bits = attention_bits(live, j, seen);
    const M16x lanes = lanes_of_bits(bits);
    F16x x = exp_below(select(lanes, load(scores + j) - splat(m), splat(0.0f)));
    x = select(lanes, x, splat(0.0f));
    *sees |= bits;
    store(e + j, narrow ? through_f16(x) : x);
    sum = sum + x;
  }
  return sum;
}

// The block of members first .. last - 1, at most kTile, from their scores to the exponentials, in
// two steps: the first updates m and leaves alpha, the second updates l and leaves e. `scores` is a
// row of `stride` a member, the first's first; where it is not w.e, it is left as it is. all: every
// position of the block has a row of the cache.
static ACCEL_INLINE void attention_peaks(const AttentionScratch& w, int first, int last, u64 j0,
                                         bool all, float cap, const float* scores, u64 stride) {
  F16x most[kTile];
  const int n = last - first;
  for (int i = n; i < kTile; ++i) most[i] = splat(0.0f);
  for (int i = 0; i < n; ++i, scores += stride) {
    const Range seen = attention_seen(w, first + i, j0);
    float* e = w.e + (first + i) * kBlock;
    if (cap > 0)
      for (u64 j = seen.lo / 16 * 16; j < seen.hi; j += 16)
        store(e + j, splat(cap) * math_tanh(load(scores + j) / splat(cap)));
    most[i] = attention_peak(cap > 0 ? e : scores, w.live, seen, all);
  }
  const F16x before = load_n(w.m + first, n), now = max(attention_largest(most), before);
  store_n(w.alpha + first, exp_below(before - now), n);
  store_n(w.m + first, now, n);
}
template <bool narrow>
static ACCEL_INLINE void attention_raises(const AttentionScratch& w, int first, int last, u64 j0,
                                          bool all, float cap, const float* scores, u64 stride) {
  F16x sum[kTile];
  const int n = last - first;
  for (int i = n; i < kTile; ++i) sum[i] = splat(0.0f);
  for (int r = first; r < last; ++r, scores += stride) {
    float* e = w.e + r * kBlock;
    sum[r - first] = attention_raise<narrow>(cap > 0 ? e : scores, e, w.m[r], w.live,
                                             attention_seen(w, r, j0), all, w.sees + r);
  }
  const F16x scaled = load_n(w.alpha + first, n) * load_n(w.l + first, n);
  store_n(w.l + first, scaled + attention_totals(sum), n);
}

// ---------------------------------------------------------------- values

// `far`: the rows lie in the cache, not in scratch.
// o = alpha * o (if `scaled`), then the chain over the positions `seen` of the block, for R
// members and N vectors of features from c on; `n` of them where N is 1.
template <class S, bool far, int R, int N>
static ACCEL_INLINE void attention_values(const AttentionScratch& w, int member, Range seen,
                                          AttentionRows<S> v, u64 padded, u64 c, int n,
                                          bool scaled) {
  F16x acc[R][N];
  float* o = w.o + member * padded + c;
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int i = 0; i < N; ++i) {
    acc[r][i] = load(o + r * padded + 16 * i);
    if (scaled) acc[r][i] = splat(w.alpha[member + r]) * acc[r][i];
  }
  const float* e = w.e + member * kBlock;
  const u64 at = v.at + c;
  for (u64 j = seen.lo; j < seen.hi; ++j) {
    const S* from = v.rows[j] + at;
    if (far) attention_fetch(v.rows[j + kAhead] + at, 16 * N);
    F16x row[N];
    ACCEL_UNROLL for (int i = 0; i < N; ++i) row[i] =
        N > 1 || n == 16 ? load(from + 16 * i) : load_n(from, n);
    ACCEL_UNROLL for (int r = 0; r < R; ++r) {
      const F16x weight = splat(e[r * kBlock + j]);
      ACCEL_UNROLL for (int i = 0; i < N; ++i) acc[r][i] = fma(weight, row[i], acc[r][i]);
    }
  }
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int i = 0; i < N; ++i)
      store(o + r * padded + 16 * i, acc[r][i]);
}
// `features`: multiples of 16, or the end.
template <class S, bool far, int R>
static void attention_features(const AttentionScratch& w, int member, Range seen,
                               AttentionRows<S> v, u64 padded, Range features, bool scaled) {
  u64 c = features.lo;
  for (; c + 16 * kFeatures <= at_most(features.hi, v.width); c += 16 * kFeatures)
    attention_values<S, far, R, kFeatures>(w, member, seen, v, padded, c, 16, scaled);
  for (; kFeatures > 2 && c + 32 <= at_most(features.hi, v.width); c += 32)
    attention_values<S, far, R, 2>(w, member, seen, v, padded, c, 16, scaled);
  for (; c < features.hi; c += 16)
    attention_values<S, far, R, 1>(w, member, seen, v, padded, c, (int)at_most(16, v.width - c),
                                   scaled);
}
template <class S, bool far>
static void attention_tile(const AttentionScratch& w, int member, int n, Range seen,
                           AttentionRows<S> v, u64 padded, Range features, bool scaled) {
  switch (n) {
    case 1:
      return attention_features<S, far, 1>(w, member, seen, v, padded, features, scaled);
    case 2:
      return attention_features<S, far, 2>(w, member, seen, v, padded, features, scaled);
#if ACCEL_ISA_avx512
    case 3:
      return attention_features<S, far, 3>(w, member, seen, v, padded, features, scaled);
    case 4:
      return attention_features<S, far, 4>(w, member, seen, v, padded, features, scaled);
#endif
  }
}

// The rows of V of the block at j0, for members first .. last - 1, all of which see into them. Of a
// tile, the earlier members first see what only they do, then all see what is common, then the
// later ones the rest.
template <class S, bool far>
static void attention_block(const AttentionScratch& w, int first, int last, u64 j0,
                            AttentionRows<S> v, u64 padded, Range features) {
  for (int i = first; i < last; i += kTile) {
    const int tile = last - i < kTile ? last - i : (int)kTile;
    const Range early = attention_seen(w, i, j0), late = attention_seen(w, i + tile - 1, j0);
    const Range common = {late.lo, early.hi};
    if (common.lo >= common.hi) {
      for (int r = i; r < i + tile; ++r)
        attention_tile<S, far>(w, r, 1, attention_seen(w, r, j0), v, padded, features, true);
      continue;
    }
    const bool even = early.lo == late.lo;
    for (int r = i; !even && r < i + tile; ++r)
      attention_tile<S, far>(w, r, 1, {attention_seen(w, r, j0).lo, common.lo}, v, padded, features,
                             true);
    attention_tile<S, far>(w, i, tile, common, v, padded, features, even);
    for (int r = i + 1; r < i + tile; ++r) {
      const u64 end = attention_seen(w, r, j0).hi;
      if (end > common.hi)
        attention_tile<S, far>(w, r, 1, {common.hi, end}, v, padded, features, false);
    }
  }
}
