// Products with the weight in [K, N], order chain: each result is one chain of multiply-adds from
// +0 over ascending k. Vector lanes run over n. K is cut only by storing the unfinished sums in out
// and taking them up again.

// Rows by vectors of a tile, and the slices of a block. On avx512 24 accumulators, 4 weights and 1
// activation; a slice passes once and its sums are in registers for up to 1024 k, so results are
// rarely read back.
#if ACCEL_ISA_avx512
enum { kKnRows = 6, kKnVectors = 4, kKnPanel = 64, kKnDepth = 1024 };
#elif ACCEL_ISA_avx2
enum { kKnRows = 6, kKnVectors = 2, kKnPanel = 32, kKnDepth = 256 };
#else
enum { kKnRows = 4, kKnVectors = 2, kKnPanel = 32, kKnDepth = 256 };
#endif
// A widened slice of a panel is [kKnDepth][kKnPanel]. A block of slices stays in the second cache.
enum {
  kKnTile = (u32)kKnVectors * kLanes,  // columns
  kKnBlockColumns = 128,
  kKnBlockDepth = 1024,
  kKnPlanes = 256,  // k whose scales and offsets are widened at a time
  kKnAhead = 16,    // k of one row to a line
};

static u64 kn_shared(const void* params) {
  const ProductShape* s = shape_of(params);
  return s->M == 1 ? 0 : (u64)s->M * s->K * 4;
}
// Slices of a block along k and along n.
static ACCEL_INLINE u32 kn_deep(u32 K) {
  return up_to(least(K, kKnBlockDepth), kKnDepth) / kKnDepth;
}
static ACCEL_INLINE u32 kn_wide(u32 N) {
  return up_to(least(N, kKnBlockColumns), kKnPanel) / kKnPanel;
}
// Floats of a slice. One activation row by packed panels keeps scales and offsets in them.
static ACCEL_INLINE u64 kn_slice(u32 K) {
  return (u64)up_to(least(K, kKnDepth), kKnPlanes) * kKnPanel;
}
// One activation row, and a block with the slack that dequant wants.
static u64 kn_local(const void* params) {
  const ProductShape* s = shape_of(params);
  return (up_to(s->K, 16) + kn_deep(s->K) * kn_wide(s->N) * kn_slice(s->K) + 16) * 4;
}

// Sixteen of each of four rows of xs, transposed: to[k * rows + r].
static ACCEL_INLINE void kn_transpose(const float (*xs)[16], float* to, u32 rows) {
  for (int k = 0; k < 16; k += 4) {
    V4 r[4], s[4], t[4];
    for (int i = 0; i < 4; ++i) r[i] = (V4)(*(const V4Any*)(xs[i] + k));
    for (int i = 0; i < 4; i += 2) {
      s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 4, 1, 5);
      s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 6, 3, 7);
    }
    for (int i = 0; i < 2; ++i) {
      t[2 * i] = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 4, 5);
      t[2 * i + 1] = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 6, 7);
    }
    for (int i = 0; i < 4; ++i) *(V4Any*)(to + (u32)(k + i) * rows) = (V4Any)t[i];
  }
}
// Rows m0 .. m1 of x, as [block][K][rows of the block].
template <class X>
static void kn_pack_rows(const X* x, u32 K, u32 m0, u32 m1, float* px) {
  float xs[kKnRows][16];
  for (u32 m = m0; m < m1;) {
    const u32 rows = block_rows(m1 - m, kKnRows);
    float* to = px + (u64)m * K;
    for (u32 k = 0; k < K; k += 16, to += 16 * rows) {
      const u32 length = least(16, K - k);
      for (u32 r = 0; r < rows; ++r) widen(x + (u64)(m + r) * K + k, length, xs[r]);
      if (length == 16 && rows >= 4) {
        for (u32 r = 0; r < rows; r += 4)  // the last four once more where they are not whole
          kn_transpose(xs + least(r, rows - 4), to + least(r, rows - 4), rows);
        continue;
      }
      for (u32 r = 0; r < rows; ++r)
        for (u32 i = 0; i < length; ++i) to[i * rows + r] = xs[r][i];
    }
    m += rows;
  }
}

// Rows of f32 are read where they are.
template <class X>
static ACCEL_INLINE bool kn_in_place() {
  return sizeof(X) == 4;
}
template <class X>
static void kn_pack(const KernelArgs* args, u32 chunk, u32 n_chunks, void*) {
  const ProductShape* s = shape_of(args->params);
  if (s->M == 1 || kn_in_place<X>()) return;
  const u32 blocks = up_to(s->M, kKnRows) / kKnRows;
  const u32 m0 = (u32)part_of(blocks, chunk, n_chunks) * kKnRows;
  const u32 m1 = (u32)part_of(blocks, chunk + 1, n_chunks) * kKnRows;
  kn_pack_rows((const X*)args->buf[0], s->K, m0, least(m1, s->M), (float*)args->shared);
}

// One slice of K: R rows of x by the columns of a panel that exist.
struct KnTile {
  const float* x;  // row m at m * row, the next k `step` further
  u64 row, step;
  const char* ahead;  // three runs, ahead_row apart: the rows that come next
  u64 ahead_row;
  const float* w;  // [depth][kKnPanel]
  u32 depth, columns;
  bool first;
  const float* bias;  // of these columns, added at the end; null before the last slice
  float* out;
  u64 width;  // of out
};

// The columns from `column` on, Vs vectors of them, from and to rows `width` apart.
template <int R, int Vs>
static __attribute__((noinline)) void kn_columns(const KnTile& t, u32 column, float* out,
                                                 u64 width) {
  V a[R][Vs];
  ACCEL_UNROLL for (int m = 0; m < R; ++m) {
    const float* from = out + m * width;
    ACCEL_UNROLL for (int n = 0; n < Vs; ++n) {
      if (t.first) __builtin_prefetch(from + n * kLanes, 1);
      a[m][n] = t.first ? v_set(0.0f) : v_load(from + n * kLanes);
    }
  }
  const float *x0 = t.x, *x3 = t.x + 3 * t.row, *w = t.w + column;
  const char* ahead = t.ahead;
  for (u32 k0 = 0; k0 < t.depth; k0 += kKnAhead) {
    for (int i = 0; i < 3; ++i) __builtin_prefetch(ahead + i * t.ahead_row, 0, 2);
    ahead += 64;
    const u32 steps = least(kKnAhead, t.depth - k0);
    for (u32 k = 0; k < steps; ++k, w += kKnPanel) {
      column_step<R, Vs>(x0, x3, t.row, w, a);
      x0 += t.step, x3 += t.step;
    }
  }
  ACCEL_UNROLL for (int m = 0; m < R; ++m) ACCEL_UNROLL for (int n = 0; n < Vs; ++n) {
    v_store(out + m * width + n * kLanes, a[m][n]);
  }
}
template <int R>
static void kn_columns_of(const KnTile& t, u32 column, u32 columns, float* out, u64 width) {
  const u32 vectors = up_to(columns, kLanes) / kLanes;
#if ACCEL_ISA_avx512
  if (vectors == 4) return kn_columns<R, 4>(t, column, out, width);
  if (vectors == 3) return kn_columns<R, 3>(t, column, out, width);
#endif
  if (vectors == 2) return kn_columns<R, 2>(t, column, out, width);
  kn_columns<R, 1>(t, column, out, width);
}

template <int R>
static void kn_tile(const KnTile& t) {
  for (u32 c = 0; c < t.columns; c += kKnTile) {
    const u32 columns = least(kKnTile, t.columns - c);
    if (columns % kLanes == 0) {
      kn_columns_of<R>(t, c, columns, t.out + c, t.width);
    } else {
      float edge[R * kKnTile];
      for (u32 m = 0; m < R; ++m)
        for (u32 n = 0; n < kKnTile; ++n)
          edge[m * kKnTile + n] = t.first || n >= columns ? 0.0f : t.out[m * t.width + c + n];
      kn_columns_of<R>(t, c, columns, edge, kKnTile);
      for (u32 m = 0; m < R; ++m)
        for (u32 n = 0; n < columns; ++n) t.out[m * t.width + c + n] = edge[m * kKnTile + n];
    }
  }
  if (t.bias)
    for (u32 m = 0; m < R; ++m)
      for (u32 n = 0; n < t.columns; ++n) t.out[m * t.width + n] += t.bias[n];
}

static void kn_tile_of(u32 rows, const KnTile& t) {
  switch (rows) {
#if ACCEL_ISA_avx512 || ACCEL_ISA_avx2
    case 6:
      return kn_tile<6>(t);
#endif
    case 4:
      return kn_tile<4>(t);
    case 2:
      return kn_tile<2>(t);
    default:
      return kn_tile<1>(t);
  }
}

// Float weights are read in pieces of rows that lie apart, so the rows to come are fetched.
template <class Weight>
static ACCEL_INLINE void kn_fetch(const Weight&, u64, u32) {}
template <class W>
static ACCEL_INLINE void kn_fetch(const FloatWeight<W>& weight, u64 i, u32 columns) {
  for (u32 c = 0; c < columns; c += 64 / sizeof(W)) __builtin_prefetch(weight.w + i + c);
}
enum { kKnFetch = 8 };  // rows

// Rows k .. k + depth - 1 of a panel's columns, widened.
template <class Weight>
static void kn_panel(const Product& p, const Weight& weight, u32 n, u32 columns, u32 k, u32 depth,
                     float* panel) {
  // Columns that do not exist are computed and dropped; they must not be slow.
  if (columns < kKnPanel)
    for (u32 i = 0; i < depth * kKnPanel; ++i) panel[i] = 0.0f;
  for (u32 i = 0; i < depth; ++i) {
    kn_fetch(weight, (u64)(k + i + kKnFetch) * p.N + n, columns);
    dequant(weight, (u64)(k + i) * p.N + n, columns, panel + i * kKnPanel);
  }
}

// Rows of x for kn_rectangle: as they are, or as kn_pack_rows leaves them.
struct KnActivations {
  const float* x;
  bool packed;
};
// A block of widened slices, [panel][slice]: depth rows from k on of the columns n .. n1.
struct KnBlock {
  const float* w;
  u32 n, n1, k, depth;
};
static void kn_block(const Product& p, const KnBlock& b, const KnActivations& x, u32 m0, u32 m1) {
  const u32 deep = up_to(b.depth, kKnDepth) / kKnDepth;
  const u64 slice = kn_slice(p.K);
  for (u32 m = m0; m < m1;) {
    const u32 rows = block_rows(m1 - m, kKnRows);
    for (u32 s = 0; s < deep; ++s) {
      const u32 k = b.k + s * kKnDepth;
      KnTile t;
      t.depth = least(kKnDepth, b.k + b.depth - k);
      t.x = x.x + (u64)m * p.K + (x.packed ? (u64)k * rows : k);
      t.row = x.packed ? 1 : p.K;
      t.step = x.packed ? rows : 1;
      t.first = k == 0;
      t.width = p.N;
      // The next rows of this slice, three of them with each panel.
      t.ahead_row = (u64)(x.packed ? t.depth : p.K) * 4;
      t.ahead = (const char*)(t.x + (u64)rows * p.K);
      const float* w = b.w + s * slice;
      for (u32 n = b.n; n < b.n1; n += kKnPanel) {
        t.w = w;
        t.columns = least(kKnPanel, b.n1 - n);
        t.bias = p.bias && k + t.depth == p.K ? p.bias + n : nullptr;
        t.out = p.out + (u64)m * p.N + n;
        kn_tile_of(rows, t);
        w += deep * slice;
        t.ahead += 3 * t.ahead_row;
      }
    }
    m += rows;
  }
}

template <class Weight>
static void kn_rectangle(const Product& p, const Weight& weight, const Rect& r,
                         const KnActivations& x, float* block) {
  for (u32 n0 = r.n0; n0 < r.n1; n0 += kKnBlockColumns)
    for (u32 k0 = 0; k0 < p.K; k0 += kKnBlockDepth) {
      const KnBlock b = {block, n0, least(n0 + kKnBlockColumns, r.n1), k0,
                         least(kKnBlockDepth, p.K - k0)};
      // In the order of the addresses: a row may be overwritten past its end.
      float* slice = block;
      for (u32 n = b.n; n < b.n1; n += kKnPanel)
        for (u32 k = k0; k < k0 + b.depth; k += kKnDepth, slice += kn_slice(p.K))
          kn_panel(p, weight, n, least(kKnPanel, b.n1 - n), k, least(kKnDepth, k0 + b.depth - k),
                   slice);
      kn_block(p, b, x, r.m0, r.m1);
    }
}
// px are packed rows.
template <class Weight>
static void kn_rectangle(const Product& p, const Weight& weight, const Rect& r, const float* px,
                         float* block) {
  kn_rectangle(p, weight, r, KnActivations{px, true}, block);
}

// One activation row: local holds it widened, then a panel.
template <class Weight>
static void kn_stream(const Product& p, const float* x, const Weight& weight, const Rect& r,
                      float* panel) {
  kn_rectangle(p, weight, r, x, panel);
}

// Float weights as stored: some rows of w at once, long pieces of each, while the sums of the piece
// wait in out. A row is fetched ahead on its own, at the end of the piece the same of the next
// rows.
enum { kKnStreamRows = 8, kKnStrip = 4096, kKnRowAhead = 1024 };
template <int Rows, class W>
static ACCEL_INLINE void kn_stream_part(const W* w, u64 width, const F16x* x, u32 from, u32 to,
                                        u64 ahead, bool first, float* out) {
  constexpr u32 kLine = 64 / sizeof(W);
  for (u32 c = from; c < to; c += kLine) {
    ACCEL_UNROLL for (int i = 0; i < Rows; ++i) __builtin_prefetch(w + i * width + c + ahead);
    for (u32 j = c; j < c + kLine && j < to; j += 16) {
      F16x a = first ? splat(0.0f) : load(out + j);
      ACCEL_UNROLL for (int i = 0; i < Rows; ++i) a = fma(x[i], load(w + i * width + j), a);
      store(out + j, a);
    }
  }
}
// Rows k .. k + Rows - 1 of w against the columns n .. n + count - 1, count a multiple of 16.
template <int Rows, class W>
static ACCEL_INLINE void kn_stream_rows(const Product& p, const float* x, const W* weight, u32 k,
                                        u32 n, u32 count) {
  constexpr u32 kAhead = kKnRowAhead / sizeof(W);
  F16x xs[Rows];
  ACCEL_UNROLL for (int i = 0; i < Rows; ++i) xs[i] = splat(x[k + (u32)i]);
  const W* w = weight + (u64)k * p.N + n;
  const u32 split = count > kAhead ? (count - kAhead) / 32 * 32 : 0;
  kn_stream_part<Rows>(w, p.N, xs, 0, split, kAhead, k == 0, p.out + n);
  kn_stream_part<Rows>(w, p.N, xs, split, count, kAhead + (u64)Rows * p.N - count, k == 0,
                       p.out + n);
}
// Fewer than sixteen columns left over go through a panel.
template <class W>
static void kn_stream(const Product& p, const float* x, const FloatWeight<W>& weight, const Rect& r,
                      float* panel) {
  const u32 end = r.n0 + (r.n1 - r.n0) / 16 * 16;
  for (u32 n = r.n0; n < end; n += kKnStrip) {
    const u32 count = least(kKnStrip, end - n);
    u32 k = 0;
    for (; k + kKnStreamRows <= p.K; k += kKnStreamRows)
      kn_stream_rows<kKnStreamRows>(p, x, weight.w, k, n, count);
    for (; k < p.K; ++k) kn_stream_rows<1>(p, x, weight.w, k, n, count);
    for (u32 c = n; p.bias && c < n + count; c += 16)
      store(p.out + c, load(p.out + c) + load(p.bias + c));
  }
  if (end < r.n1) kn_rectangle(p, weight, {end, r.n1, 0, 1}, x, panel);
}

template <class X, class Weight>
static void kn_run(const Product& p, const KernelArgs* args, const Weight& weight, const Rect& r,
                   void* local) {
  if (r.n0 == r.n1) return;
  float* x = (float*)local;
  float* panel = x + up_to(p.K, 16);
  const bool in_place = kn_in_place<X>();
  const KnActivations rows = {(const float*)(in_place ? args->buf[0] : args->shared), !in_place};
  if (p.M > 1) return kn_rectangle(p, weight, r, rows, panel);
  widen((const X*)args->buf[0], p.K, x);
  kn_stream(p, x, weight, r, panel);
}
