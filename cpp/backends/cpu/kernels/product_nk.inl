// Products with the weight in [N, K], order lane16: sixteen virtual lanes over k, lane = k mod 16,
// each a chain of multiply-adds from +0 over ascending k; then the tree 8, 4, 2, 1. A result
// depends on its row of x and its row of w alone. Padding of x is -0 and of w +0: the product -0
// leaves every accumulator as it is.

#if ACCEL_ISA_avx512
enum { kNkRows = 6, kNkColumns = 4 };  // 24 accumulators, 4 weights, 1 activation of 32 registers
#elif ACCEL_ISA_avx2
enum { kNkRows = 6, kNkColumns = 2 };  // 12, 2 and 1 of 16, half of the lanes at a time
#else
enum { kNkRows = 4, kNkColumns = 2 };
#endif
// A block of activation rows, one slice of K of it, stays in the nearest cache while the widened
// weight rows of a block pass from the second one. Between slices whole accumulators are kept,
// which changes no bit.
#if ACCEL_ISA_avx512
enum { kNkSlice = 1024 };
#else
enum { kNkSlice = 768 };  // two or four passes read it, and the nearest cache is smaller
#endif
// Products of few rows have tiles of their own (product_few.inl).
#if ACCEL_ISA_avx512
static constexpr u32 kFewRows = 32;
#else
static constexpr u32 kFewRows = 0;
#endif
enum {
  kNkBlockColumns = 128,
  kNkBlockFloats = 32 * 4096,
  kNkCarry = 16 * kNkColumns,  // floats of one activation row's accumulators in one tile
};

static ACCEL_INLINE u32 nk_width(u32 K) {
  return up_to(K, 16);
}
// One vector more than the row, so that rows of a power of two do not share cache sets.
static ACCEL_INLINE u32 nk_stride(u32 K) {
  return nk_width(K) + 16;
}
static ACCEL_INLINE u32 nk_block_columns(u32 K) {
  const u32 fit = kNkBlockFloats / nk_width(K) / 4 * 4;
  return fit < 4 ? 4 : least(fit, kNkBlockColumns);
}

static u64 nk_shared(const void* params) {
  const ProductShape* s = shape_of(params);
  return s->M == 1 ? 0 : (u64)s->M * nk_width(s->K) * 4;
}
static u64 few_local(u32 K);
static u64 lanes_local(u32 K, u32 N);
// One activation row, and the most that a rectangle of 1 .. M rows takes: those of an expert are as
// few as its counts say.
static u64 nk_local(const void* params) {
  const ProductShape* s = shape_of(params);
  const u32 columns = up_to(least(nk_block_columns(s->K), s->N), kNkColumns);
  const u64 many = (u64)columns * (nk_stride(s->K) + kNkRows * 16);  // widened, accumulators
  const u64 few = few_local(s->K), lanes = lanes_local(s->K, s->N);
  const u64 other = few < lanes ? lanes : few;
  return (nk_width(s->K) + (many < other ? other : many)) * 4;
}

// ---------------------------------------------------------------- activations

template <class X>
static ACCEL_INLINE F16x nk_load(const X* x, u32 k, u32 K) {
  if (k + 16 <= K) return load(x + k);
  return select(lanes_below((int)(K - k)), load_n(x + k, (int)(K - k)), splat(-0.0f));
}

// Many rows of whole vectors of f32 are read where they are.
template <class X>
static ACCEL_INLINE bool nk_in_place(u32 M, u32 K) {
  return sizeof(X) == 4 && K % 16 == 0 && M > kFewRows;
}
// Rows m0 .. m1 of x, as [block][K / 16][rows of the block][16].
template <class X>
static void nk_pack_rows(const X* x, u32 K, u32 m0, u32 m1, float* px) {
  const u32 width = nk_width(K);
  for (u32 m = m0; m < m1;) {
    const u32 rows = block_rows(m1 - m, kNkRows);
    float* to = px + (u64)m * width;
    for (u32 k = 0; k < width; k += 16)
      for (u32 r = 0; r < rows; ++r, to += 16) store(to, nk_load(x + (u64)(m + r) * K, k, K));
    m += rows;
  }
}

template <class X>
static void nk_pack(const KernelArgs* args, u32 chunk, u32 n_chunks, void*) {
  const ProductShape* s = shape_of(args->params);
  if (s->M == 1 || nk_in_place<X>(s->M, s->K)) return;
  const u32 blocks = up_to(s->M, kNkRows) / kNkRows;
  const u32 m0 = (u32)part_of(blocks, chunk, n_chunks) * kNkRows;
  const u32 m1 = (u32)part_of(blocks, chunk + 1, n_chunks) * kNkRows;
  nk_pack_rows((const X*)args->buf[0], s->K, m0, least(m1, s->M), (float*)args->shared);
}

// ---------------------------------------------------------------- tiles

// The trees of four accumulators at once.
#if ACCEL_ISA_avx512
static ACCEL_INLINE V4 four_trees(F16x a, F16x b, F16x c, F16x d) {
  V r = add_quarters(add_halves(a.p[0], b.p[0]), add_halves(c.p[0], d.p[0]));
  r = r + _mm512_permute_ps(r, 0x4e);
  r = r + _mm512_permute_ps(r, 0xb1);
  const VI first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
  return (V4)_mm512_castps512_ps128(_mm512_permutexvar_ps(first, r));
}
// The trees of four rows by four columns: rows part at the first two steps, columns at the others.
static ACCEL_INLINE void four_rows(const V (*a)[4], V4* y) {
  V column[4];
  ACCEL_UNROLL for (int c = 0; c < 4; ++c) {
    column[c] = add_quarters(add_halves(a[0][c], a[1][c]), add_halves(a[2][c], a[3][c]));
  }
  const V r = add_neighbours(add_pairs(column[0], column[1]), add_pairs(column[2], column[3]));
  y[0] = (V4)_mm512_castps512_ps128(r);
  y[1] = (V4)_mm512_extractf32x4_ps(r, 1);
  y[2] = (V4)_mm512_extractf32x4_ps(r, 2);
  y[3] = (V4)_mm512_extractf32x4_ps(r, 3);
}
static ACCEL_INLINE void two_rows(const V (*a)[4], V4* y) {
  V half[4];
  ACCEL_UNROLL for (int c = 0; c < 4; ++c) half[c] = add_halves(a[0][c], a[1][c]);
  V r = add_pairs(add_quarters(half[0], half[1]), add_quarters(half[2], half[3]));
  r = r + _mm512_permute_ps(r, 0xb1);
  const VI at = _mm512_setr_epi32(0, 8, 2, 10, 4, 12, 6, 14, 0, 0, 0, 0, 0, 0, 0, 0);
  const __m256 both = _mm512_castps512_ps256(_mm512_permutexvar_ps(at, r));
  y[0] = (V4)_mm256_castps256_ps128(both);
  y[1] = (V4)_mm256_extractf128_ps(both, 1);
}
template <int R>
static ACCEL_INLINE void tile_trees(const V (*a)[4], V4* y) {
  if (R >= 4) four_rows(a, y);
  if (R % 4 >= 2) two_rows(a + R / 4 * 4, y + R / 4 * 4);
  if (R % 2)
    y[R - 1] = four_trees({{a[R - 1][0]}}, {{a[R - 1][1]}}, {{a[R - 1][2]}}, {{a[R - 1][3]}});
}
#else
static ACCEL_INLINE V4 four_trees(F16x a, F16x b, F16x c, F16x d) {
  const V4 s = fold_add(a), t = fold_add(b), u = fold_add(c), v = fold_add(d);
  const V4 st =
      __builtin_shufflevector(s, t, 0, 1, 4, 5) + __builtin_shufflevector(s, t, 2, 3, 6, 7);
  const V4 uv =
      __builtin_shufflevector(u, v, 0, 1, 4, 5) + __builtin_shufflevector(u, v, 2, 3, 6, 7);
  return __builtin_shufflevector(st, uv, 0, 2, 4, 6) + __builtin_shufflevector(st, uv, 1, 3, 5, 7);
}
#endif

// One slice of K of one tile: up to kNkRows rows of x by kNkColumns rows of w.
struct NkTile {
  const float* x;  // row m at m * row, the next sixteen values `step` further
  u64 row, step;
  const float* w;  // rows of `stride` floats
  u64 stride;
  u32 steps, columns;  // vectors of K; columns of out that exist
  bool first, last;
  const char* ahead;  // lines of the rows that come next: a part for each tile
  u64 ahead_row;
  u32 ahead_lines;
  float* carry;       // [R][kNkColumns][16]
  const float* bias;  // of this tile's columns, or null
  float* out;
  u64 width;  // of out
};

// The results of a tile: y[m] holds those of row m in its first lanes.
static __attribute__((noinline)) void nk_store(const NkTile& t, const V4* y, int rows) {
  for (int m = 0; m < rows; ++m) {
    float* out = t.out + m * t.width;
    if (t.columns == 4) {
      *(V4Any*)out = (V4Any)(t.bias ? y[m] + (V4)(*(const V4Any*)t.bias) : y[m]);
      continue;
    }
    for (u32 n = 0; n < t.columns; ++n) out[n] = t.bias ? y[m][n] + t.bias[n] : y[m][n];
  }
}

#if !ACCEL_ISA_avx512
// Two rows of two columns at a time; of an odd row the second is itself.
template <int R>
static ACCEL_INLINE void nk_finish(const NkTile& t) {
  V4 y[R + 1];
  for (int m = 0; m < R; m += 2) {
    const float* a = t.carry + m * kNkCarry;
    const float* b = a + (m + 1 < R ? kNkCarry : 0);
    y[m] = four_trees(load(a), load(a + 16), load(b), load(b + 16));
    y[m + 1] = __builtin_shufflevector(y[m], y[m], 2, 3, 2, 3);
  }
  nk_store(t, y, R);
}
#endif

template <int R>
static void nk_tile(const NkTile& t) {
  for (u32 i = 0; i < t.ahead_lines; ++i)
    ACCEL_UNROLL for (int m = 0; m < R; ++m) __builtin_prefetch(t.ahead + 64 * i + m * t.ahead_row);
  if (t.last) ACCEL_UNROLL for (int m = 0; m < R; ++m) __builtin_prefetch(t.out + m * t.width, 1);
  for (int part = 0; part < kParts; ++part) {
    V a[R][kNkColumns];
    float* carry = t.carry + part * kLanes;
    ACCEL_UNROLL for (int m = 0; m < R; ++m) {
      const float* from = carry + m * kNkCarry;
      ACCEL_UNROLL for (int n = 0; n < kNkColumns; ++n) {
        a[m][n] = t.first ? v_set(0.0f) : v_load(from + n * 16);
      }
    }
    const float* x = t.x + part * kLanes;
    const float* w = t.w + part * kLanes;
    for (u32 s = 0; s < t.steps; ++s, x += t.step, w += 16) {
      V row[kNkColumns];
      ACCEL_UNROLL for (int n = 0; n < kNkColumns; ++n) row[n] = v_load(w + n * t.stride);
      ACCEL_UNROLL for (int m = 0; m < R; ++m) {
        const V xs = v_load(x + m * t.row);
        ACCEL_UNROLL for (int n = 0; n < kNkColumns; ++n) a[m][n] = v_fma(xs, row[n], a[m][n]);
      }
    }
#if ACCEL_ISA_avx512
    if (t.last) {
      V4 y[R];
      tile_trees<R>(a, y);
      return nk_store(t, y, R);
    }
#endif
    ACCEL_UNROLL for (int m = 0; m < R; ++m) {
      float* to = carry + m * kNkCarry;
      ACCEL_UNROLL for (int n = 0; n < kNkColumns; ++n) v_store(to + n * 16, a[m][n]);
    }
  }
#if !ACCEL_ISA_avx512
  if (t.last) nk_finish<R>(t);
#endif
}

static void nk_tile_of(u32 rows, const NkTile& t) {
  switch (rows) {
#if ACCEL_ISA_avx512 || ACCEL_ISA_avx2
    case 6:
      return nk_tile<6>(t);
#endif
    case 4:
      return nk_tile<4>(t);
    case 2:
      return nk_tile<2>(t);
    default:
      return nk_tile<1>(t);
  }
}

// ---------------------------------------------------------------- the product

// Rows of x for nk_rectangle: as they are, or as nk_pack_rows leaves them.
struct NkActivations {
  const float* x;
  bool packed;
};
// A block of widened weight rows against rows m0 .. m1; n is the first column of the block.
struct NkBlock {
  NkActivations x;
  const float* w;  // rows of `stride` floats
  u64 stride;
  float* carry;
  u32 n, columns, m0, m1;
};

// One block of rows in one slice of K, k .. k + length - 1, against all weight rows.
static void nk_row_block(const Product& p, const NkBlock& b, u32 m, u32 rows, u32 k, u32 length) {
  const u32 width = nk_width(p.K);
  NkTile t;
  t.x = b.x.packed ? b.x.x + (u64)m * width + (u64)k * rows : b.x.x + (u64)m * p.K + k;
  t.row = b.x.packed ? 16 : p.K;
  t.step = b.x.packed ? rows * 16 : 16;
  t.stride = b.stride;
  t.steps = length / 16;
  t.first = k == 0;
  t.last = k + length == width;
  t.width = p.N;
  // Fetched ahead: weights of the next tiles while the first rows pass; then the next rows, as many
  // lines with each tile as all tiles need to fetch them.
  const bool first_rows = m == b.m0;
  const u32 tiles = up_to(b.columns, kNkColumns) / kNkColumns, lines = t.steps;
  const float* next = t.x + (u64)rows * (b.x.packed ? width : p.K);
  t.ahead_row = (first_rows ? t.stride : b.x.packed ? length : p.K) * 4;
  t.ahead_lines = first_rows ? lines : (lines + tiles - 1) / tiles;
  for (u32 c = 0; c < b.columns; c += kNkColumns) {
    t.ahead = (const char*)(first_rows ? b.w + (c + kNkColumns) * t.stride + k
                                       : next + 16 * t.ahead_lines * (c / kNkColumns));
    t.w = b.w + c * t.stride + k;
    t.columns = least(kNkColumns, b.columns - c);
    t.carry = b.carry + (t.first && t.last ? 0 : c * rows * 16);
    t.bias = p.bias ? p.bias + b.n + c : nullptr;
    t.out = p.out + (u64)m * p.N + b.n + c;
    nk_tile_of(rows, t);
  }
}
static void nk_block(const Product& p, const NkBlock& b) {
  const u32 width = nk_width(p.K), n_slices = (width + kNkSlice - 1) / kNkSlice;
  const u32 slice = up_to(width / 16, n_slices) / n_slices * 16;
  for (u32 m = b.m0; m < b.m1;) {
    const u32 rows = block_rows(b.m1 - m, kNkRows);
    for (u32 k = 0; k < width; k += slice) nk_row_block(p, b, m, rows, k, least(slice, width - k));
    m += rows;
  }
}

// Weight rows that may be read where they are, or null.
template <class Weight>
static ACCEL_INLINE const float* nk_weight_in_place(const Weight&, u64) {
  return nullptr;
}
static ACCEL_INLINE const float* nk_weight_in_place(const FloatWeight<float>& weight, u64 i) {
  return weight.w + i;
}

template <class Weight>
static void few_rectangle(const Product& p, const Weight& weight, const Rect& r, const float* px,
                          float* scratch);
static bool lanes_pay(u32 K, u32 rows);
template <class Weight>
static void lanes_rectangle(const Product& p, const Weight& weight, const Rect& r,
                            const NkActivations& x, float* scratch);

// The rectangle of one chunk; scratch holds what nk_local says, less one row.
template <class Weight>
static void nk_rectangle(const Product& p, const Weight& weight, const Rect& r,
                         const NkActivations& x, float* scratch) {
  const u32 width = nk_width(p.K), stride = nk_stride(p.K);
  if (x.packed && r.m1 - r.m0 <= kFewRows && !nk_weight_in_place(weight, 0))
    return few_rectangle(p, weight, r, x.x, scratch);
  if (lanes_pay(p.K, r.m1 - r.m0)) return lanes_rectangle(p, weight, r, x, scratch);
  const u32 most = least(nk_block_columns(p.K), r.n1 - r.n0);
  for (u32 n = r.n0; n < r.n1; n += most) {
    u32 columns = least(most, r.n1 - n), done = 0;
    float* carry = scratch + (u64)up_to(most, kNkColumns) * stride;
    const float* given = nk_weight_in_place(weight, (u64)n * p.K);
    if (given && width == p.K) {  // tiles of columns that all exist
      done = columns / kNkColumns * kNkColumns;
      if (done) nk_block(p, {x, given, p.K, carry, n, done, r.m0, r.m1});
      if (done == columns) continue;
    }
    columns -= done;
    for (u32 c = 0; c < columns; ++c) {
      float* row = scratch + (u64)c * stride;
      dequant(weight, (u64)(n + done + c) * p.K, p.K, row);
      for (u32 k = p.K; k < width; ++k) row[k] = 0.0f;
    }
    for (u64 i = (u64)columns * stride; i < (u64)up_to(columns, kNkColumns) * stride; ++i)
      scratch[i] = 0.0f;
    nk_block(p, {x, scratch, stride, carry, n + done, columns, r.m0, r.m1});
  }
}
// px are packed rows.
template <class Weight>
static void nk_rectangle(const Product& p, const Weight& weight, const Rect& r, const float* px,
                         float* scratch) {
  nk_rectangle(p, weight, r, NkActivations{px, true}, scratch);
}

// One activation row whose weight has no stream of its own: through the same tiles.
template <class X, class Weight>
static void nk_stream(const Product& p, const X* x, const Weight& weight, const Rect& r,
                      float* local) {
  nk_pack_rows(x, p.K, 0, 1, local);
  nk_rectangle(p, weight, r, local, local + nk_width(p.K));
}

template <class X, class Weight>
static void nk_run(const Product& p, const KernelArgs* args, const Weight& weight, const Rect& r,
                   void* local) {
  if (r.n0 == r.n1) return;
  float* scratch = (float*)local;
  if (p.M == 1) return nk_stream(p, (const X*)args->buf[0], weight, r, scratch);
  const bool in_place = nk_in_place<X>(p.M, p.K);
  const NkActivations x = {(const float*)(in_place ? args->buf[0] : args->shared), !in_place};
  nk_rectangle(p, weight, r, x, scratch + nk_width(p.K));
}

// ---------------------------------------------------------------- one row against weights as
// stored

enum { kNkStreamRows = kParts == 1 ? 4 : 2, kNkAhead = 4096 };

// Byte distance to fetch ahead: whole blocks of rows, so that the addresses run on linearly for any
// row length.
static ACCEL_INLINE u64 bytes_ahead(u64 block_bytes, u64 minimum) {
  return (minimum + block_bytes - 1) / block_bytes * block_bytes;
}

// Rows that a stream reads together: those past the last one read the last one again, and their
// results are dropped.
static ACCEL_INLINE u32 stream_row(u32 n, u32 r, u32 n1) {
  return n + r < n1 ? n + r : n1 - 1;
}

// Up to four results from column n on, n1 being the end.
static ACCEL_INLINE void put_results(const Product& p, V4 y, u32 n, u32 n1) {
  if (n + 4 <= n1 && kNkStreamRows == 4) {
    *(V4Any*)(p.out + n) = (V4Any)(p.bias ? y + (V4)(*(const V4Any*)(p.bias + n)) : y);
    return;
  }
  for (u32 r = 0; r < kNkStreamRows && n + r < n1; ++r)
    p.out[n + r] = p.bias ? y[r] + p.bias[n + r] : y[r];
}
static ACCEL_INLINE void stream_store(const Product& p, const F16x* a, u32 n, u32 n1) {
  put_results(p, four_trees(a[0], a[1], a[kNkStreamRows - 2], a[kNkStreamRows - 1]), n, n1);
}

// Float rows are long: each is fetched ahead on its own, at its end the same row of the next block.
enum { kNkRowAhead = 2048 };
template <class W>
static ACCEL_INLINE void nk_stream_part(const W* const* w, const float* x, u32 from, u32 to,
                                        u64 ahead, F16x* a) {
  constexpr u32 kLine = 64 / sizeof(W);
  for (u32 k = from; k < to; k += kLine) {
    for (u32 i = 0; i < kNkStreamRows; ++i) __builtin_prefetch(w[i] + k + ahead);
    for (u32 j = k; j < k + kLine && j < to; j += 16) {
      const F16x xs = load(x + j);
      for (u32 i = 0; i < kNkStreamRows; ++i) a[i] = fma(xs, load(w[i] + j), a[i]);
    }
  }
}
template <class X, class W>
static void nk_stream(const Product& p, const X* x, const FloatWeight<W>& weight, const Rect& r,
                      float* local) {
  nk_pack_rows(x, p.K, 0, 1, local);
  constexpr u32 kAhead = kNkRowAhead / sizeof(W);
  const u32 whole = p.K / 16 * 16, split = whole > kAhead ? (whole - kAhead) / 32 * 32 : 0;
  for (u32 n = r.n0; n < r.n1; n += kNkStreamRows) {
    const W* w[kNkStreamRows];
    F16x a[kNkStreamRows];
    for (u32 i = 0; i < kNkStreamRows; ++i) w[i] = weight.w + (u64)stream_row(n, i, r.n1) * p.K;
    for (u32 i = 0; i < kNkStreamRows; ++i) a[i] = splat(0.0f);
    nk_stream_part(w, local, 0, split, kAhead, a);
    nk_stream_part(w, local, split, whole, kAhead + (u64)(kNkStreamRows - 1) * p.K, a);
    if (whole < p.K)
      for (u32 i = 0; i < kNkStreamRows; ++i)
        a[i] = fma(load(local + whole), load_n(w[i] + whole, (int)(p.K - whole)), a[i]);
    stream_store(p, a, n, r.n1);
  }
}
