// What all products share: the operands of one call, how the work is cut into chunks, and the
// weight sources. A source stands for a weight as one flat array of f32: dequant(source, i, count,
// dst) writes the weights of the flat indices i .. i + count - 1, reads nothing else, and may
// overwrite up to 15 floats behind dst[count - 1].

typedef float V4Any __attribute__((vector_size(16), aligned(4), may_alias));

struct Product {
  u32 M, K, N;
  const float* bias;  // [N], or null
  float* out;         // [M, N]
};

// The first four words of ProductParams.
struct ProductShape {
  u32 M, K, N, nk;
};
static ACCEL_INLINE const ProductShape* shape_of(const void* params) {
  return (const ProductShape*)params;
}
static ACCEL_INLINE Product product_of(const KernelArgs* args, const void* bias, void* out) {
  const ProductShape* s = shape_of(args->params);
  return {s->M, s->K, s->N, (const float*)bias, (float*)out};
}
static ACCEL_INLINE u32 least(u32 a, u32 b) {
  return a < b ? a : b;
}
static ACCEL_INLINE u32 up_to(u32 n, u32 to) {
  return (n + to - 1) / to * to;
}

// ---------------------------------------------------------------- chunks
// A chunk owns a rectangle of out. Columns are cut first, in units of 16, so that threads share no
// cache line; rows are cut only where the columns do not feed all threads, because every row part
// widens the weight again.

enum {
  kProductUnit = 16,
  kProductColumns = 128,  // their widened weights fill the second cache and share each row of x
  kProductLeast = 64,     // where more chunks are wanted
  kProductRows = 96,
  kStripsNk = 8,           // of a thread, for one activation row
  kStripsKn = 2,           // fewer, because long pieces of the rows of w are read
  kProductWork = 1 << 15,  // multiply-adds that are worth a chunk
};

using accel_cpu::Rect;

static __attribute__((unused)) u32 product_chunks(const void* params, u32 threads) {
  const ProductShape* s = shape_of(params);
  const u32 units = up_to(s->N, kProductUnit) / kProductUnit;
  const u64 work = (u64)s->M * s->K * s->N / kProductWork;
  if (threads == 1 && s->M == 1) return 1;
  if (work < 2) return 1;
  u32 columns = up_to(s->N, kProductColumns) / kProductColumns;
  // A few for each thread, and as many for one as for another.
  const u32 even = up_to(least(4 * threads, s->N / kProductLeast), threads);
  if (threads > 1) columns = columns < even ? even : up_to(columns, threads);
  if (s->M == 1) columns = least(units, threads * (s->nk ? kStripsNk : kStripsKn));
  if (columns < 2 * threads) columns = units;
  if (columns > work) return (u32)work;
  const u32 rows = columns < 2 * threads ? (2 * threads + columns - 1) / columns : 1;
  return columns * least(rows, up_to(s->M, kProductRows) / kProductRows);
}

static u64 part_of(u64 units, u64 chunk, u64 n_chunks) {
  return units * chunk / n_chunks;
}

// The rectangle of one chunk, for any number of chunks; empty for those beyond the rectangles there
// are.
static Rect product_range(const Product& p, u32 block, u32 chunk, u32 n_chunks) {
  const u32 units = up_to(p.N, kProductUnit) / kProductUnit, blocks = up_to(p.M, block) / block;
  const u32 columns = least(n_chunks, units), rows = least(n_chunks / columns, blocks);
  if (chunk >= columns * rows) return {0, 0, 0, 0};
  const u32 c = chunk % columns, r = chunk / columns;
  const u64 n0 = part_of(units, c, columns) * kProductUnit,
            n1 = part_of(units, c + 1, columns) * kProductUnit;
  const u64 m0 = part_of(blocks, r, rows) * block, m1 = part_of(blocks, r + 1, rows) * block;
  return {(u32)n0, n1 < p.N ? (u32)n1 : p.N, (u32)m0, m1 < p.M ? (u32)m1 : p.M};
}

template <u32 kRows>
static __attribute__((unused)) Rect product_owns(const void* params, u32 chunk, u32 n_chunks) {
  const ProductShape* s = shape_of(params);
  return product_range({s->M, s->K, s->N, nullptr, nullptr}, kRows, chunk, n_chunks);
}

// Activation rows are packed in blocks of `most`, then 4, 2 and 1 rows; the block's rows at m begin
// at m * (row's floats).
static ACCEL_INLINE u32 block_rows(u32 left, u32 most) {
  return left >= most ? most : left >= 4 ? 4 : left >= 2 ? 2 : 1;
}
enum { kProductPack = 48 };  // of one packing chunk; a multiple of every block

static u32 pack_chunks(const void* params, u32) {
  const u32 M = shape_of(params)->M;
  return M == 1 ? 1 : up_to(M, kProductPack) / kProductPack;
}

// One k of a tile whose lanes run over columns: R rows of x, `row` apart and x3 being the fourth,
// by Vs vectors of w.
template <int R, int Vs>
static ACCEL_INLINE void column_step(const float* x0, const float* x3, u64 row, const float* w,
                                     V (*a)[Vs]) {
  V wide[Vs];
  ACCEL_UNROLL for (int n = 0; n < Vs; ++n) wide[n] = v_load(w + n * kLanes);
  ACCEL_UNROLL for (int m = 0; m < R; ++m) {
    const V xs = v_set(m < 3 ? x0[m * row] : x3[(m - 3) * row]);
    ACCEL_UNROLL for (int n = 0; n < Vs; ++n) a[m][n] = v_fma(xs, wide[n], a[m][n]);
  }
}

// ---------------------------------------------------------------- float weights

template <class W>
struct FloatWeight {
  const W* w;  // [N, K] or [K, N]
};

template <class W>
static ACCEL_INLINE void dequant(const FloatWeight<W>& s, u64 i, u32 count, float* dst) {
  const W* w = s.w + i;
  u32 j = 0;
  for (; j + 16 <= count; j += 16) store(dst + j, load(w + j));
  if (j == count) return;
  // The last sixteen once more, or fewer where there are no sixteen.
  if (count >= 16) store(dst + count - 16, load(w + count - 16));
  else store(dst, load_n(w, (int)count));
}

// count values widened to f32; dst may be overwritten up to the next multiple of 16.
template <class T>
static ACCEL_INLINE void widen(const T* p, u32 count, float* dst) {
  dequant(FloatWeight<T>{p}, 0, count, dst);
}

static ACCEL_INLINE float widen_one(float v) {
  return v;
}
static ACCEL_INLINE float widen_one(bf16 v) {
  const u32 bits = (u32)v.bits << 16;
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}
static ACCEL_INLINE float widen_one(f16 v) {
#if ACCEL_ISA_avx512 || ACCEL_ISA_avx2
  return _cvtsh_ss(v.bits);
#else
  const f16 four[4] = {v, v, v, v};
  return v_load(four)[0];
#endif
}
