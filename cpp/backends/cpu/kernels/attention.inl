// attention over contiguous caches, order attention_block128 (spec 010): blocks of 128 positions at
// multiples of 128. Score: lane16 over head_dim, then times scale. A block: m' = max(m, block max),
// alpha = exp(m - m'), e = exp(s - m'); l = alpha * l + (lane16 of e over position mod 16); o =
// alpha * o, then one chain o = fma(e, v, o) over ascending positions. Members are the (row, head)
// pairs of one kv head in that order, so what they see never shrinks. A block of K and V is widened
// once into scratch and serves all members of the chunk; positions past a member's end are in no
// arithmetic of it.

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

static u32 attention_chunks(const void* params, u32 threads) {
  const AttentionParams& p = *(const AttentionParams*)params;
  const u64 members = (u64)p.S * p.heads;
  if (p.S == 1) return threads < p.heads ? p.kv_heads : p.heads;
  return chunks_of(members, 24, threads);
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
  u64* end;      // [kMembers] positions seen
};
static u64 attention_local(const void* params) {
  const u64 padded = round_up(((const AttentionParams*)params)->head_dim, 16);
  return 4 * ((kBlock + 2 * kMembers) * padded + kMembers * (kBlock + 3)) + 8 * kMembers;
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
  s.end = (u64*)(s.alpha + kMembers);
  return s;
}

// n rows of the cache, `stride` elements apart, widened to [n, padded]; the padding is +0.
template <class T>
static void stage_rows(const T* from, u64 stride, int n, u32 width, float* to) {
  const u64 padded = round_up(width, 16);
  for (int j = 0; j < n; ++j) {
    u32 c = 0;
    for (; c + 16 <= width; c += 16) store(to + j * padded + c, load(from + j * stride + c));
    if (c < width) store(to + j * padded + c, load_n(from + j * stride + c, (int)(width - c)));
  }
}

// scores[0..n) of one member against n staged keys, times scale; returns their maximum, NaN passed
// over.
static float attention_scores(const float* q, const float* k, int n, u64 padded, F16x scale,
                              float* scores) {
  const F16x lowest = splat(-3.4e38f);
  F16x most = lowest;
  for (int j = 0; j < n; j += 16) {
    F16x dots[16];
    ACCEL_UNROLL for (int g = 0; g < 16; g += kKeys) {
      F16x acc[kKeys];
      ACCEL_UNROLL for (int i = 0; i < kKeys; ++i) acc[i] = splat(0.0f);
      const float* row = k + (u64)(j + g) * padded;
      for (u64 c = 0; c < padded; c += 16) {
        const F16x qc = load(q + c);
        ACCEL_UNROLL for (int i = 0; i < kKeys; ++i) acc[i] =
            fma(qc, load(row + i * padded + c), acc[i]);
      }
      ACCEL_UNROLL for (int i = 0; i < kKeys; ++i) dots[g + i] = acc[i];
    }
    const F16x s = sums16(dots) * scale;
    store(scores + j, s);
    most = n - j >= 16 ? max(s, most) : max(select(lanes_below(n - j), s, lowest), most);
  }
  return max16(most);
}

// One member's block up to the exponentials: updates m and l, leaves e[0..n) and alpha.
static void attention_weights(const AttentionScratch& w, int member, int n, u64 padded,
                              F16x scale) {
  float* e = w.e + member * kBlock;
  const float most = attention_scores(w.q + member * padded, w.rows, n, padded, scale, e);
  const float m = max2(most, w.m[member]);
  const F16x alpha = math_exp(splat(w.m[member] - m));
  F16x sum = splat(0.0f);
  for (int j = 0; j < n; j += 16) {
    F16x x = math_exp(load(e + j) - splat(m));
    if (n - j < 16) x = select(lanes_below(n - j), x, splat(0.0f));
    store(e + j, x);
    sum = sum + x;
  }
  float first[16];
  store(first, alpha);
  const float scaled = first[0] * w.l[member];
  w.l[member] = scaled + sum16(sum);
  w.m[member] = m;
  w.alpha[member] = first[0];
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
  const float* e = w.e + member * kBlock;
  for (u64 j = seen.lo; j < seen.hi; ++j) {
    const float* v = w.rows + j * padded + c;
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
static void attention_tile(const AttentionScratch& w, int member, int n, Range seen, u64 padded) {
  switch (n) {
    case 1:
      return attention_features<1>(w, member, seen, padded, true);
    case 2:
      return attention_features<2>(w, member, seen, padded, true);
#if ACCEL_ISA_avx512
    case 3:
      return attention_features<3>(w, member, seen, padded, true);
    case 4:
      return attention_features<4>(w, member, seen, padded, true);
#endif
  }
}

// The staged rows of V from position j0 on, for members first .. n - 1, all of which see into them.
static void attention_block(const AttentionScratch& w, int first, int n, u64 j0, u64 padded) {
  for (int i = first; i < n; i += kTile) {
    // What all of the tile see, then what the later members see beyond it.
    const int tile = n - i < kTile ? n - i : (int)kTile;
    const u64 common = at_most(w.end[i] - j0, kBlock);
    attention_tile(w, i, tile, {0, common}, padded);
    for (int r = 1; r < tile; ++r) {
      const u64 seen = at_most(w.end[i + r] - j0, kBlock);
      if (seen > common) attention_features<1>(w, i + r, {common, seen}, padded, false);
    }
  }
}

// Members m0 .. m1 - 1 of one kv head.
template <class T>
static void attention_piece(const KernelArgs* a, u32 kv_head, u64 m0, u64 m1, void* local) {
  const AttentionParams& p = *(const AttentionParams*)a->params;
  const float* q = (const float*)a->buf[0];  // [S, heads, head_dim]
  const T* k = (const T*)a->buf[1];          // [capacity, kv_heads, head_dim]
  const T* v = (const T*)a->buf[2];
  float* out = (float*)a->buf[4];  // [S, heads, head_dim]
  const u64 length = at_most(*(const u32*)a->buf[3], p.capacity), padded = round_up(p.head_dim, 16);
  const u64 stride = (u64)p.kv_heads * p.head_dim, group = p.heads / p.kv_heads;
  const F16x scale = splat(__builtin_bit_cast(float, a->scalar[0]));
  const u64 base = p.prefill ? a->scalar[1] : 0;
  const AttentionScratch w = attention_scratch(local, padded);
  const int n = (int)(m1 - m0);
  for (int i = 0; i < n; ++i) {
    const u64 row = (m0 + i) / group, head = kv_head * group + (m0 + i) % group;
    stage_rows(q + (row * p.heads + head) * p.head_dim, 0, 1, p.head_dim, w.q + i * padded);
    for (u64 c = 0; c < padded; c += 16) store(w.o + i * padded + c, splat(0.0f));
    w.m[i] = -3.4e38f;
    w.l[i] = 0.0f;
    w.end[i] = p.prefill ? at_most(length, base + row + 1) : length;
  }
  int first = 0;
  for (u64 j0 = 0; j0 < w.end[n - 1]; j0 += kBlock) {
    const int rows = (int)at_most(w.end[n - 1] - j0, kBlock);
    const u64 at = j0 * stride + (u64)kv_head * p.head_dim;
    while (w.end[first] <= j0) ++first;
    stage_rows(k + at, stride, rows, p.head_dim, w.rows);
    // Keys that fill up the last sixteen: their scores are dropped.
    for (u64 c = rows * padded; c < round_up(rows, 16) * padded; c += 16)
      store(w.rows + c, splat(0.0f));
    for (int i = first; i < n; ++i)
      attention_weights(w, i, (int)at_most(w.end[i] - j0, kBlock), padded, scale);
    stage_rows(v + at, stride, rows, p.head_dim, w.rows);
    attention_block(w, first, n, j0, padded);
  }
  for (int i = 0; i < n; ++i) {
    const u64 row = (m0 + i) / group, head = kv_head * group + (m0 + i) % group;
    float* to = out + (row * p.heads + head) * p.head_dim;
    for (u32 c = 0; c < p.head_dim; c += 16) {
      const F16x o = load(w.o + i * padded + c) / splat(w.l[i]);
      store_n(to + c, w.end[i] ? o : splat(0.0f), (int)at_most(16, p.head_dim - c));
    }
  }
}

template <class T>
static void attention_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const AttentionParams& p = *(const AttentionParams*)a->params;
  const u64 members = (u64)p.S * (p.heads / p.kv_heads);  // of one kv head
  const Range r = range_of(members * p.kv_heads, 1, chunk, n_chunks);
  for (u64 m = r.lo; m < r.hi;) {
    const u64 kv_head = m / members, end = at_most(r.hi, (kv_head + 1) * members);
    const u64 n = at_most(end - m, kMembers);
    attention_piece<T>(a, (u32)kv_head, m - kv_head * members, m - kv_head * members + n, local);
    m += n;
  }
}
