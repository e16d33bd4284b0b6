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
  const ProductParams& p = *(const ProductParams*)args->params;
  return {p.M,
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
  const ProductParams& p = *(const ProductParams*)params;
  const u64 work = (u64)p.M * p.K * p.N / kProductWork;
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
template <class Plane>
static ACCEL_INLINE Int4Columns<Plane> weight_from(const Int4Columns<Plane>& w, u64 base) {
  return {w.bytes + base / 2, w.row_bytes, weight_from(Int4Rows<Plane>{w.weight}, base).any};
}
static ACCEL_INLINE Int8Columns weight_from(const Int8Columns& w, u64 base) {
  return {w.bytes + base, w.row_bytes, w.scales + base / 32};
}

// ---------------------------------------------------------------- both orders

// Floats of one packed or widened row.
template <bool NK>
static ACCEL_INLINE u32 grouped_width(u32 K) {
  return NK ? nk_width(K) : K;
}

// Phase one of grouped_matmul: each expert's rows in blocks of their own. A chunk packs the blocks
// that begin in its part of the rows; rounding them afterwards changes no place.
template <bool NK>
static void grouped_pack(const KernelArgs* args, u32 chunk, u32 n_chunks, void*) {
  const Grouped g = grouped_of(args);
  const u32 to = quant_params(args->params)->activations;
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
    const u64 width = grouped_width<NK>(g.K);
    if (to != kWide) round_rows(px + m0 * width, (m1 - m0) * width, to, px + m0 * width);
  }
}

// What a thread needs beside its tiles: a row of x, rounded.
static ACCEL_INLINE u64 grouped_x_bytes(const void* params) {
  const ProductParams* p = quant_params(params);
  return p->activations == kWide ? 0 : (u64)p->K * 4;
}
static u64 grouped_nk_local(const void* params) {
  return nk_local(params) + grouped_x_bytes(params);
}
static u64 grouped_kn_local(const void* params) {
  return kn_local(params) + grouped_x_bytes(params);
}
// A row of x as the product takes it.
template <bool NK>
static ACCEL_INLINE const float* grouped_x(const KernelArgs* args, const float* x, void* local) {
  const ProductParams* p = quant_params(args->params);
  if (p->activations == kWide) return x;
  float* row = (float*)((char*)local + (NK ? nk_local(p) : kn_local(p)));
  round_rows(x, p->K, p->activations, row);
  return row;
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

// A chunk owns a range of columns, and of experts where the columns do not feed all threads:
// run(product over an expert's rows, first row, weight, columns).
template <class Weight, class Run>
static ACCEL_INLINE void grouped_experts(const Grouped& g, const Weight& all, u32 chunk,
                                         u32 n_chunks, const Run& run) {
  const Product experts = {g.experts, g.K, g.N, nullptr, nullptr};
  const Rect r = product_range(experts, 1, chunk, n_chunks);
  if (r.n0 == r.n1) return;
  if (r.m0 == 0) grouped_padding(g, r);
  for (u32 e = r.m0; e < r.m1; ++e) {
    const u32 begin = g.offsets[e], end = g.offsets[e + 1];
    if (begin == end) continue;
    const float* bias = g.bias ? g.bias + (u64)e * g.N : nullptr;
    const Product p = {end - begin, g.K, g.N, bias, g.out + (u64)begin * g.N};
    run(p, begin, weight_from(all, (u64)e * g.K * g.N), Rect{r.n0, r.n1, 0, p.M});
  }
}

// Each: every row streams the weight; otherwise many rows of an expert share it.
template <bool NK, bool Each, class Weight>
static void grouped_run(const KernelArgs* args, const Weight& all, u32 chunk, u32 n_chunks,
                        void* local) {
  const Grouped g = grouped_of(args);
  const auto run = [&](const Product& p, u64 begin, const auto& weight, const Rect& r) {
    if (!Each && p.M > kGroupedStream) {
      const float* px = (const float*)args->shared + begin * grouped_width<NK>(g.K);
      return grouped_rows<NK>(p, weight, r, px, (float*)local);
    }
    for (u64 m = 0; m < p.M; ++m) {
      const Product one = {1, p.K, p.N, p.bias, p.out + m * p.N};
      const float* x = grouped_x<NK>(args, g.x + (begin + m) * g.K, local);
      grouped_row<NK>(one, x, weight, {r.n0, r.n1, 0, 1}, (float*)local);
    }
  };
  grouped_experts(g, all, chunk, n_chunks, run);
}

// Rows rounded to int8: both operators share tiles of the weight.
template <bool Int4, class Weight>
static void grouped_by_int8(const KernelArgs* args, const Weight& all, u32 chunk, u32 n_chunks,
                            void* local) {
  const Grouped g = grouped_of(args);
  const u32 group = quant_params(args->params)->group;
  const Int8Activations a = int8_activations(args);
  const auto run = [&](const Product& p, u64 begin, const auto& weight, const Rect& r) {
    int8_rectangle<Int4>(p, weight, int8_from(a, begin, 0, 0), group, r, local);
    if (!p.bias) return;
    for (u64 m = 0; m < p.M; ++m)
      for (u32 n = r.n0; n < r.n1; ++n) p.out[m * p.N + n] += p.bias[n];
  };
  grouped_experts(g, all, chunk, n_chunks, run);
}

// ---------------------------------------------------------------- kernels

template <bool NK, bool Each, class W>
static void grouped_float(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  grouped_run<NK, Each>(args, FloatWeight<W>{(const W*)args->buf[1]}, chunk, n_chunks, local);
}

template <class Plane>
static ACCEL_INLINE Int4Weight<Plane> grouped_int4_weight(const KernelArgs* args) {
  const ProductParams& p = *(const ProductParams*)args->params;
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

template <class Plane>
static void grouped_int4_by_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Int4Weight<Plane> w = grouped_int4_weight<Plane>(args);
  const Int4Columns<Plane> columns = {(const char*)w.codes, shape_of(args->params)->K / 2, w};
  grouped_by_int8<true>(args, columns, chunk, n_chunks, local);
}
static void grouped_int8_by_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Int8Weight w = grouped_int8_weight(args);
  const Int8Columns columns = {(const char*)w.q, shape_of(args->params)->K, w.scales};
  grouped_by_int8<false>(args, columns, chunk, n_chunks, local);
}
