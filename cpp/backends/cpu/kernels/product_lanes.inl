// Many activation rows by a weight in [N, K], order lane16, one lane after another: a lane of a
// tile of 6 rows by 64 columns is a product over every sixteenth k, with the columns in the
// vectors. The tree then is an addition of whole tiles, 15 for 16 results, and needs no shuffle.
// For that a block of weights is widened and transposed once, so it takes many rows to pay.

#if ACCEL_ISA_avx512
enum {
  kLanesPanel = 64,     // columns
  kLanesColumns = 128,  // of a block, in the second cache
  kLanesPiece = 256,    // k widened at a time
  kLanesLevels = 4,     // of the tree
};
// The rows of a block must stay in the nearest cache while all lanes pass.
static bool lanes_pay(u32 K, u32 rows) {
  return K >= 256 && K <= 1024 && rows >= 256;
}
// Floats of one lane of a panel: one vector more, so that lanes do not fall into the same sets.
static ACCEL_INLINE u64 lane_floats(u32 K) {
  return nk_width(K) / 16 * kLanesPanel + 16;
}
static ACCEL_INLINE u64 lanes_tree() {
  return (u64)kLanesLevels * kNkRows * kLanesPanel;
}
// Sixteen rows of a piece, and what dequant may overwrite behind the last.
static ACCEL_INLINE u64 lanes_wide() {
  return 16 * kLanesPiece + 16;
}
static u64 lanes_local(u32 K, u32 N) {
  if (!lanes_pay(K, ~0u)) return 0;
  const u32 panels = up_to(least(N, kLanesColumns), kLanesPanel) / kLanesPanel;
  return panels * 16 * lane_floats(K) + lanes_tree() + lanes_wide();
}

struct LanesTile {
  const float* x;  // lane l of step s of row m: x[m * row + s * step + l]
  u64 row, step;
  const float* w;  // [lane][step][kLanesPanel], a lane `lane` floats
  u64 lane;
  u32 steps;
  const char* ahead;  // lines of the rows that come next: a part with each lane
  u64 ahead_row;
  u32 ahead_lines;
  const char* weights;  // of the columns that come next, `weight_lines` with each lane
  u32 weight_lines;
  float* tree;  // a tile for each level
  const float* bias;
  float* out;
  u64 width;    // of out
  u32 columns;  // that exist
};

template <int R, int Vs>
static ACCEL_INLINE void lanes_store(const LanesTile& t, V (*a)[Vs]) {
  const u32 last = t.columns - (Vs - 1) * 16;
  ACCEL_UNROLL for (int n = 0; n < Vs; ++n) {
    const bool whole = n + 1 < Vs || last == 16;
    V bias = v_set(0.0f);
    if (t.bias) bias = whole ? v_load(t.bias + n * 16) : v_loadn(t.bias + n * 16, (int)last);
    ACCEL_UNROLL for (int m = 0; m < R; ++m) {
      const V y = t.bias ? v_add(a[m][n], bias) : a[m][n];
      if (whole) v_store(t.out + m * t.width + n * 16, y);
      else v_storen(t.out + m * t.width + n * 16, y, (int)last);
    }
  }
}

template <int R, int Vs>
static __attribute__((noinline)) void lanes_tile(const LanesTile& t) {
  // Lanes 8, 4, 2 and 1 apart meet as soon as both are done.
  static const unsigned char order[16] = {0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15};
  ACCEL_UNROLL for (int m = 0; m < R; ++m) ACCEL_UNROLL for (int n = 0; n < Vs; ++n) {
    __builtin_prefetch(t.out + m * t.width + n * 16, 1);
  }
  const char *ahead = t.ahead, *weights = t.weights;
  const u64 row = t.row, step = t.step;
  for (u32 i = 0;; ++i) {
    V a[R][Vs];
    ACCEL_UNROLL for (int m = 0; m < R; ++m) ACCEL_UNROLL for (int n = 0; n < Vs; ++n) {
      a[m][n] = v_set(0.0f);
    }
    for (u32 j = 0; j < t.ahead_lines; ++j, ahead += 64)
      ACCEL_UNROLL for (int m = 0; m < R; ++m) __builtin_prefetch(ahead + m * t.ahead_row, 0, 2);
    for (u32 j = 0; j < t.weight_lines; ++j, weights += 64) __builtin_prefetch(weights, 0, 2);
    const float *x0 = t.x + order[i], *x3 = x0 + 3 * row, *w = t.w + order[i] * t.lane;
    for (u32 s = 0; s < t.steps; ++s, x0 += step, x3 += step, w += kLanesPanel)
      column_step<R, Vs>(x0, x3, row, w, a);
    float* level = t.tree;
    for (u32 bit = 1; i & bit; bit <<= 1, level += R * Vs * 16)
      ACCEL_UNROLL for (int m = 0; m < R; ++m) ACCEL_UNROLL for (int n = 0; n < Vs; ++n) {
        a[m][n] = v_add(v_load(level + (m * Vs + n) * 16), a[m][n]);
      }
    if (i == 15) return lanes_store<R, Vs>(t, a);
    ACCEL_UNROLL for (int m = 0; m < R; ++m) ACCEL_UNROLL for (int n = 0; n < Vs; ++n) {
      v_store(level + (m * Vs + n) * 16, a[m][n]);
    }
  }
}
template <int R>
static void lanes_tile_of(const LanesTile& t) {
  const u32 vectors = up_to(t.columns, 16) / 16;
  if (vectors == 4) lanes_tile<R, 4>(t);
  else if (vectors == 3) lanes_tile<R, 3>(t);
  else if (vectors == 2) lanes_tile<R, 2>(t);
  else lanes_tile<R, 1>(t);
}

// ---------------------------------------------------------------- panels

// `count` weights of each of sixteen columns, widened, as rows kLanesPiece apart; those that do not
// exist are +0.
template <class Weight>
static ACCEL_INLINE void lanes_widen(const Weight& weight, u64 i, u64 K, u32 columns, u32 count,
                                     float* to) {
  for (u32 c = 0; c < 16; ++c) {
    float* row = to + c * kLanesPiece;
    u32 k = 0;
    if (c < columns) dequant(weight, i + c * K, k = count, row);
    for (; k < up_to(count, 16); ++k) row[k] = 0.0f;
  }
}
template <class Weight>
static void lanes_piece(const Weight& weight, u64 i, u64 K, u32 columns, u32 count, float* wide,
                        float* to, u64 lane) {
  lanes_widen(weight, i, K, columns, count, wide);
  for (u32 k = 0; k < count; k += 16, to += kLanesPanel) {
    F16x v[16];
    ACCEL_UNROLL for (int c = 0; c < 16; ++c) v[c] = load(wide + c * kLanesPiece + k);
    store_transposed(v, to, lane);
  }
}
// Whole vectors of float weights need no copy. Their rows lie apart, so each is fetched ahead.
template <class W>
static void lanes_piece(const FloatWeight<W>& weight, u64 i, u64 K, u32 columns, u32 count,
                        float* wide, float* to, u64 lane) {
  if (columns < 16 || count % 16) {
    lanes_widen(weight, i, K, columns, count, wide);
    return lanes_piece(FloatWeight<float>{wide}, 0, kLanesPiece, 16, up_to(count, 16), wide, to,
                       lane);
  }
  for (u32 k = 0; k < count; k += 16, to += kLanesPanel) {
    F16x v[16];
    const W* from = weight.w + i + k;
    ACCEL_UNROLL for (int c = 0; c < 16; ++c) {
      v[c] = load(from + c * K);
      if (k % (64 / sizeof(W)) == 0) __builtin_prefetch(from + c * K + 512 / sizeof(W));
    }
    store_transposed(v, to, lane);
  }
}
template <class Weight>
static void lanes_panel(const Weight& weight, u32 K, u32 n, u32 columns, float* to, float* wide) {
  const u64 lane = lane_floats(K);
  for (u32 c = 0; c < columns; c += 16)
    for (u32 k = 0; k < K; k += kLanesPiece)
      lanes_piece(weight, (u64)(n + c) * K + k, K, least(16, columns - c),
                  least(kLanesPiece, K - k), wide, to + k / 16 * kLanesPanel + c, lane);
}

// ---------------------------------------------------------------- the product

// The bytes of weights i .. i + count - 1, or none: float weights are read faster than they come
// from memory.
struct LanesNext {
  const char* at;
  u64 bytes;
};
template <class Weight>
static ACCEL_INLINE LanesNext lanes_next(const Weight&, u64, u64) {
  return {nullptr, 0};
}
template <class W>
static ACCEL_INLINE LanesNext lanes_next(const FloatWeight<W>& weight, u64 i, u64 count) {
  return {(const char*)(weight.w + i), count * sizeof(W)};
}

// A block of panels, columns n0 .. n1, against all rows.
static void lanes_block(const Product& p, const NkActivations& x, const float* panels, u32 n0,
                        u32 n1, const Rect& r, const LanesNext& next, float* tree) {
  const u32 width = nk_width(p.K), parts = up_to(n1 - n0, kLanesPanel) / kLanesPanel * 16;
  LanesTile t;
  t.lane = lane_floats(p.K);
  t.steps = width / 16;
  t.ahead_row = (u64)width * 4;
  t.ahead_lines = (t.steps + parts - 1) / parts;
  t.weights = next.at;
  t.weight_lines =
      (u32)((next.bytes / 64 * kNkRows + parts * (r.m1 - r.m0) - 1) / (parts * (r.m1 - r.m0)));
  t.tree = tree;
  t.width = p.N;
  for (u32 m = r.m0; m < r.m1;) {
    const u32 rows = block_rows(r.m1 - m, kNkRows);
    t.x = x.x + (u64)m * width;
    t.row = x.packed ? 16 : width;
    t.step = x.packed ? rows * 16 : 16;
    t.ahead = (const char*)(t.x + (u64)rows * width);
    t.w = panels;
    for (u32 n = n0; n < n1; n += kLanesPanel) {
      t.columns = least(kLanesPanel, n1 - n);
      t.bias = p.bias ? p.bias + n : nullptr;
      t.out = p.out + (u64)m * p.N + n;
      if (rows == 6) lanes_tile_of<6>(t);
      else if (rows == 4) lanes_tile_of<4>(t);
      else if (rows == 2) lanes_tile_of<2>(t);
      else lanes_tile_of<1>(t);
      t.w += 16 * t.lane;
      t.ahead += 16 * 64 * t.ahead_lines;
      t.weights += 16 * 64 * t.weight_lines;
    }
    m += rows;
  }
}
template <class Weight>
static void lanes_rectangle(const Product& p, const Weight& weight, const Rect& r,
                            const NkActivations& x, float* scratch) {
  float* wide = scratch + lanes_tree();
  float* panels = wide + lanes_wide();
  for (u32 n0 = r.n0; n0 < r.n1; n0 += kLanesColumns) {
    const u32 n1 = least(n0 + kLanesColumns, r.n1);
    float* to = panels;
    for (u32 n = n0; n < n1; n += kLanesPanel, to += 16 * lane_floats(p.K))
      lanes_panel(weight, p.K, n, least(kLanesPanel, n1 - n), to, wide);
    const u32 columns = least(kLanesColumns, p.N - n1);
    lanes_block(p, x, panels, n0, n1, r, lanes_next(weight, (u64)n1 * p.K, (u64)columns * p.K),
                scratch);
  }
}
#else
static bool lanes_pay(u32, u32) {
  return false;
}
static u64 lanes_local(u32, u32) {
  return 0;
}
template <class Weight>
static void lanes_rectangle(const Product&, const Weight&, const Rect&, const NkActivations&,
                            float*) {}
#endif
