// Few activation rows by a weight in [N, K], order lane16. While the first rows of x pass, the
// weights of four columns are widened between the multiply-adds and left in the nearest cache,
// where the other rows find them; few rows would not pay for a way through the second one. Another
// thread of the core may take half of the instruction slots, so every address of a tile is a
// pointer and a constant.

#if ACCEL_ISA_avx512
static constexpr u32 kFewGroup = 128;  // the widest group of a weight
static constexpr u32 kFewSlice = 6 * kFewGroup, kFewStride = kFewSlice + 16;
static constexpr u32 kFewColumns = 4;

// Four columns of out, or those that exist, in one slice of K.
struct FewColumns {
  u32 K, n, columns;  // the first one, and how many exist
  u32 k, length;
  float* planes;  // [columns][K / 32] scales, and offsets behind them
  float* wide;    // widened weights, kFewStride apart
};
static ACCEL_INLINE u64 few_planes(u32 K) {
  return up_to(kFewColumns * (K / 32), 16);
}
// Columns past the last one are the last one, and their results are dropped.
static ACCEL_INLINE u32 few_column(const FewColumns& b, u32 c) {
  return b.n + (c < b.columns ? c : b.columns - 1);
}

// The weights of a tile that stand widened. Other sources have pair(c, i, v), the weights of column
// c at k = 32 i .. 32 i + 31.
struct FewWide {};

template <int R>
static ACCEL_INLINE void few_step(const float* x, const float* w, V (*a)[4]) {
  V row[4];
  ACCEL_UNROLL for (int n = 0; n < 4; ++n) row[n] = v_load(w + n * kFewStride);
  ACCEL_UNROLL for (int m = 0; m < R; ++m) {
    const V xs = v_load(x + m * 16);
    ACCEL_UNROLL for (int n = 0; n < 4; ++n) a[m][n] = v_fma(xs, row[n], a[m][n]);
  }
}
static ACCEL_INLINE void few_widen(const FewWide&, u32, float*) {}
template <class Source>
static ACCEL_INLINE void few_widen(const Source& source, u32 i, float* w) {
  ACCEL_UNROLL for (int n = 0; n < 4; ++n) {
    V v[2];
    source.pair(n, i, v);
    v_store(w + n * kFewStride, v[0]);
    v_store(w + n * kFewStride + 16, v[1]);
  }
}
template <int R, class Source>
static void few_tile(const NkTile& t, const Source& source, float* w) {
  V a[R][4];
  ACCEL_UNROLL for (int m = 0; m < R; ++m) ACCEL_UNROLL for (int n = 0; n < 4; ++n) {
    a[m][n] = t.first ? v_set(0.0f) : v_load(t.carry + (m * 4 + n) * 16);
  }
  const float* x = t.x;
  const u32 pairs = t.steps / 2;
  for (u32 i = 0; i < pairs; ++i, x += 32 * R, w += 32) {
    few_widen(source, i, w);
    few_step<R>(x, w, a);
    few_step<R>(x + 16 * R, w + 16, a);
  }
  if (t.steps % 2) few_step<R>(x, w, a);
  if (!t.last) {
    float* to = t.carry;
    ACCEL_UNROLL for (int m = 0; m < R; ++m) ACCEL_UNROLL for (int n = 0; n < 4; ++n) {
      v_store(to + (m * 4 + n) * 16, a[m][n]);
    }
    return;
  }
  V4 y[R];
  tile_trees<R>(a, y);
  if (t.columns != 4 || t.bias) {
    V4 kept[R];  // so that y stays in registers
    for (int m = 0; m < R; ++m) kept[m] = y[m];
    return nk_store(t, kept, R);
  }
  float* out = t.out;
  const u64 width = t.width;
  ACCEL_UNROLL for (int m = 0; m < R; ++m, out += width) * (V4Any*)out = (V4Any)y[m];
}
template <class Source>
static void few_tile_of(u32 rows, const NkTile& t, const Source& source, float* w) {
  if (rows == 6) few_tile<6>(t, source, w);
  else if (rows == 4) few_tile<4>(t, source, w);
  else if (rows == 2) few_tile<2>(t, source, w);
  else few_tile<1>(t, source, w);
}

// What a weight may have of its own: a preparation of the columns, fetching those that come next,
// and first tiles that widen as they go.
template <class Weight>
static ACCEL_INLINE void few_prepare(const Weight&, const FewColumns&) {}
template <class Weight>
static ACCEL_INLINE void few_fetch(const Weight&, u64, u64) {}
static ACCEL_INLINE void fetch_bytes(const void* from, u64 bytes) {
  for (u64 i = 0; i < bytes; i += 64) __builtin_prefetch((const char*)from + i, 0, 2);
}
template <class Weight>
static void few_first(const Weight& weight, const FewColumns& b, u32 rows, const NkTile& t) {
  const u32 there = least(b.length, b.K - b.k);
  for (u32 c = 0; c < kFewColumns; ++c) {
    float* row = b.wide + c * kFewStride;
    dequant(weight, (u64)few_column(b, c) * b.K + b.k, there, row);
    for (u32 k = there; k < b.length; ++k) row[k] = 0.0f;
  }
  few_tile_of(rows, t, FewWide{}, b.wide);
}

template <class Weight>
static void few_columns(const Product& p, const Weight& weight, FewColumns& b, const Rect& r,
                        const float* px, float* carry) {
  const u32 width = nk_width(p.K), slices = (width + kFewSlice - 1) / kFewSlice;
  const u32 slice = slices == 1 ? width : up_to((width + slices - 1) / slices, kFewGroup);
  const u64 next = (u64)(b.n + b.columns) * p.K;
  NkTile t;
  t.columns = b.columns;
  t.bias = p.bias ? p.bias + b.n : nullptr;
  t.width = p.N;
  few_prepare(weight, b);
  few_fetch(weight, next, (u64)least(kFewColumns, r.n1 - b.n - b.columns) * p.K);
  for (b.k = 0; b.k < width; b.k += slice) {
    b.length = least(slice, width - b.k);
    t.steps = b.length / 16;
    t.first = b.k == 0;
    t.last = b.k + b.length == width;
    t.carry = carry;
    for (u32 m = r.m0; m < r.m1;) {
      const u32 rows = block_rows(r.m1 - m, kNkRows);
      t.x = px + (u64)m * width + (u64)b.k * rows;
      t.out = p.out + (u64)m * p.N + b.n;
      if (m == r.m0) few_first(weight, b, rows, t);
      else few_tile_of(rows, t, FewWide{}, b.wide);
      m += rows, t.carry += rows * kNkCarry;
    }
  }
}
// px are packed rows; scratch holds few_local floats.
template <class Weight>
static void few_rectangle(const Product& p, const Weight& weight, const Rect& r, const float* px,
                          float* scratch) {
  float* carry = scratch + 2 * few_planes(p.K);
  FewColumns b = {p.K, 0, 0, 0, 0, scratch, carry + kFewRows * kNkCarry};
  for (b.n = r.n0; b.n < r.n1; b.n += kFewColumns) {
    b.columns = least(kFewColumns, r.n1 - b.n);
    few_columns(p, weight, b, r, px, carry);
  }
}
static u64 few_local(u32 K) {
  return 2 * few_planes(K) + kFewRows * kNkCarry + kFewColumns * kFewStride;
}
#else
template <class Weight>
static void few_rectangle(const Product&, const Weight&, const Rect&, const float*, float*) {}
static u64 few_local(u32) {
  return 0;
}
#endif
