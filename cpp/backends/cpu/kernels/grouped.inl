// grouped_matvec and grouped_matmul: the rows [offsets[e], offsets[e + 1]) of x against the part of
// the weight that belongs to expert e. Every result is that of the product over those rows alone.

struct Grouped {
  u32 T, K, N, experts;
  const float* x;
  const u32* offsets;  // [experts + 1], clamped to T
  const float* bias;   // [experts, N], or null
  float* out;
};
static ACCEL_INLINE Grouped grouped_of(const KernelArgs* args) {
  const GroupedParams& p = *(const GroupedParams*)args->params;
  return {p.T,
          p.K,
          p.N,
          p.experts,
          (const float*)args->buf[0],
          (const u32*)args->buf[9],
          (const float*)args->buf[8],
          (float*)args->buf[10]};
}

// Wide ranges of columns, because rows stream the weight; experts are cut where the columns do not
// feed all threads.
enum {
  kGroupedStrips = 4,  // of a thread
  kGroupedStream = 2,  // rows of an expert that stream the weight each, rather than share tiles
};
static u32 grouped_chunks(const void* params, u32 threads) {
  const GroupedParams& p = *(const GroupedParams*)params;
  const u64 work = (u64)p.T * p.K * p.N / kProductWork;
  if (threads == 1 || work < 2) return 1;
  const u32 columns =
      least(up_to(p.N, kProductColumns) / kProductColumns, threads * kGroupedStrips);
  if (columns > work) return (u32)work;
  const u32 parts = columns < 2 * threads ? (2 * threads + columns - 1) / columns : 1;
  return columns * least(parts, p.experts);
}

// ---------------------------------------------------------------- one expert's weight

// A weight whose flat index begins behind `base`, where groups or blocks may straddle experts.
template <class Weight>
struct Behind {
  Weight all;
  u64 base;
};
template <class Weight>
static ACCEL_INLINE void dequant(const Behind<Weight>& s, u64 i, u32 count, float* dst) {
  dequant(s.all, s.base + i, count, dst);
}

template <class Weight>
static ACCEL_INLINE Behind<Weight> weight_from(const Weight& w, u64 base) {
  return {w, base};
}
template <class W>
static ACCEL_INLINE FloatWeight<W> weight_from(const FloatWeight<W>& w, u64 base) {
  return {w.w + base};
}
// Rows of whole groups, so experts are whole groups too.
template <class Plane>
static ACCEL_INLINE Int4Rows<Plane> weight_from(const Int4Rows<Plane>& w, u64 base) {
  const u64 group = base >> w.any.shift;
  return {{w.any.codes + base / 8, w.any.scales + group, w.any.offsets + group, w.any.shift,
           w.any.zeros}};
}
static ACCEL_INLINE Int8Rows weight_from(const Int8Rows& w, u64 base) {
  return {{w.any.q + base, w.any.scales + base / 32}};
}

// ---------------------------------------------------------------- both orders

// Floats of one packed or widened row.
template <bool NK>
static ACCEL_INLINE u32 grouped_width(u32 K) {
  return NK ? nk_width(K) : K;
}

// Phase one of grouped_matmul: each expert's rows in blocks of their own. A chunk packs the blocks
// that begin in its part of the rows.
template <bool NK>
static void grouped_pack(const KernelArgs* args, u32 chunk, u32 n_chunks, void*) {
  const Grouped g = grouped_of(args);
  if (g.T == 1) return;
  const u32 lo = (u32)part_of(g.T, chunk, n_chunks), hi = (u32)part_of(g.T, chunk + 1, n_chunks);
  for (u32 e = 0; e < g.experts; ++e) {
    const u32 begin = g.offsets[e], rows = g.offsets[e + 1] - begin;
    if (rows <= kGroupedStream || begin >= hi || begin + rows <= lo) continue;
    const u32 block = NK ? (u32)kNkRows : (u32)kKnRows;
    const u32 m0 = lo > begin ? up_to(lo - begin, block) : 0;
    const u32 m1 = least(up_to(hi - begin, block), rows);
    if (m0 >= m1) continue;
    const float* x = g.x + (u64)begin * g.K;
    float* px = (float*)args->shared + (u64)begin * grouped_width<NK>(g.K);
    if (NK) nk_pack_rows(x, g.K, m0, m1, px);
    else kn_pack_rows(x, g.K, m0, m1, px);
  }
}

// One row through the weight as stored; p.M is 1.
template <bool NK, class Weight>
static ACCEL_INLINE void grouped_row(const Product& p, const float* x, const Weight& weight,
                                     const Rect& r, float* local) {
  if constexpr (NK) {
    nk_stream(p, x, weight, r, local);
  } else {
    widen(x, p.K, local);
    kn_stream(p, (const float*)local, weight, r, local + up_to(p.K, 16));
  }
}
// Packed rows share tiles of the widened weight.
template <bool NK, class Weight>
static ACCEL_INLINE void grouped_rows(const Product& p, const Weight& weight, const Rect& r,
                                      const float* px, float* local) {
  if constexpr (NK) nk_rectangle(p, weight, r, px, local + nk_width(p.K));
  else kn_rectangle(p, weight, r, px, local + up_to(p.K, 16));
}

// Columns n0 .. n1 of the padding rows.
static void grouped_padding(const Grouped& g, const Rect& r) {
  for (u64 t = g.offsets[g.experts]; t < g.T; ++t)
    for (u32 n = r.n0; n < r.n1; ++n) g.out[t * g.N + n] = 0.0f;
}

// A chunk owns a range of columns, and of experts where the columns do not feed all threads. Each:
// every row streams the weight; otherwise many rows of an expert share it.
template <bool NK, bool Each, class Weight>
static void grouped_run(const KernelArgs* args, const Weight& all, u32 chunk, u32 n_chunks,
                        void* local) {
  const Grouped g = grouped_of(args);
  const Product experts = {g.experts, g.K, g.N, nullptr, nullptr};
  const Rect r = product_range(experts, 1, chunk, n_chunks);
  if (r.n0 == r.n1) return;
  if (r.m0 == 0) grouped_padding(g, r);
  for (u32 e = r.m0; e < r.m1; ++e) {
    const u32 begin = g.offsets[e], end = g.offsets[e + 1];
    if (begin == end) continue;
    const auto weight = weight_from(all, (u64)e * g.K * g.N);
    const float* bias = g.bias ? g.bias + (u64)e * g.N : nullptr;
    if (!Each && end - begin > kGroupedStream) {
      const Product p = {end - begin, g.K, g.N, bias, g.out + (u64)begin * g.N};
      const float* px = (const float*)args->shared + (u64)begin * grouped_width<NK>(g.K);
      grouped_rows<NK>(p, weight, {r.n0, r.n1, 0, p.M}, px, (float*)local);
      continue;
    }
    for (u64 t = begin; t < end; ++t) {
      const Product p = {1, g.K, g.N, bias, g.out + t * g.N};
      grouped_row<NK>(p, g.x + t * g.K, weight, {r.n0, r.n1, 0, 1}, (float*)local);
    }
  }
}

// ---------------------------------------------------------------- kernels

template <bool NK, bool Each, class W>
static void grouped_float(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  grouped_run<NK, Each>(args, FloatWeight<W>{(const W*)args->buf[1]}, chunk, n_chunks, local);
}

template <class Plane>
static ACCEL_INLINE Int4Weight<Plane> grouped_int4_weight(const KernelArgs* args) {
  const GroupedParams& p = *(const GroupedParams*)args->params;
  return {(const u32*)args->buf[2], (const Plane*)args->buf[3],
          (const Plane*)args->buf[p.zeros ? 4 : 5],
          p.group == 32   ? 5u
          : p.group == 64 ? 6u
                          : 7u,
          p.zeros != 0};
}
template <bool Each, class Plane>
static void grouped_nk_int4(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Int4Rows<Plane> rows = {grouped_int4_weight<Plane>(args)};
  grouped_run<true, Each>(args, rows, chunk, n_chunks, local);
}
template <bool NK, bool Each, class Plane>
static void grouped_any_int4(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  grouped_run<NK, Each>(args, grouped_int4_weight<Plane>(args), chunk, n_chunks, local);
}

static ACCEL_INLINE Int8Weight grouped_int8_weight(const KernelArgs* args) {
  return {(const signed char*)args->buf[6], (const f16*)args->buf[3]};
}
template <bool Each>
static void grouped_nk_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  grouped_run<true, Each>(args, Int8Rows{grouped_int8_weight(args)}, chunk, n_chunks, local);
}
template <bool NK, bool Each>
static void grouped_any_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  grouped_run<NK, Each>(args, grouped_int8_weight(args), chunk, n_chunks, local);
}
