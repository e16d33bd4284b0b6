// Packed weights of the kn products (CONTRACT E14): panels of a group of columns each, a panel's
// rows one after another, so that one activation row reads whole runs of bytes. Codes stand as
// [N / unit][K][unit], scales and offsets as [N / unit][K]; unit is the group and divides N. The
// order is that of kn, a chain over k.

// A source W counts rows over all panels: w.planes(row, count, to) widens their scales to `to` and
// their offsets to to + kKnPlanes; w.values<Vectors>(row, first, scale, offset, v) gives vectors
// first, first + 1, ... of a row.
template <class W>
struct Panels {
  W w;
  u32 unit;
};

enum { kPanelsTogether = 32 / 8 / kParts };  // vectors of accumulators, two at least

template <int Vectors, int Together, class W>
static void panel_columns(const Product& p, const float* x, const W& w, u32 n, float* planes) {
  F16x a[Together][Vectors];
  for (int j = 0; j < Together; ++j)
    for (int i = 0; i < Vectors; ++i) a[j][i] = splat(0.0f);
  const u64 first = (u64)(n / (Vectors * 16)) * p.K;
  for (u32 k0 = 0; k0 < p.K; k0 += kKnPlanes) {
    const u32 depth = least(kKnPlanes, p.K - k0);
    for (int j = 0; j < Together; ++j)
      w.planes(first + (u64)j * p.K + k0, depth, planes + j * 2 * kKnPlanes);
    for (u32 k = 0; k < depth; ++k) {
      const F16x xs = splat(x[k0 + k]);
      ACCEL_UNROLL for (int j = 0; j < Together; ++j) {
        const float* s = planes + j * 2 * kKnPlanes + k;
        F16x v[Vectors];
        w.template values<Vectors>(first + (u64)j * p.K + k0 + k, 0, s[0], s[kKnPlanes], v);
        ACCEL_UNROLL for (int i = 0; i < Vectors; ++i) a[j][i] = fma(xs, v[i], a[j][i]);
      }
    }
  }
  for (int j = 0; j < Together; ++j)
    for (int i = 0; i < Vectors; ++i) store(p.out + n + (j * Vectors + i) * 16, a[j][i]);
}
template <int Vectors, class W>
static void panel_strip(const Product& p, const float* x, const W& w, const Rect& r,
                        float* planes) {
  constexpr int kTogether = kPanelsTogether * 2 > Vectors ? kPanelsTogether * 2 / Vectors : 1;
  u32 n = r.n0;
  for (; n + kTogether * Vectors * 16 <= r.n1; n += kTogether * Vectors * 16)
    panel_columns<Vectors, kTogether>(p, x, w, n, planes);
  for (; n < r.n1; n += Vectors * 16) panel_columns<Vectors, 1>(p, x, w, n, planes);
}
template <class W>
static void kn_stream(const Product& p, const float* x, const Panels<W>& s, const Rect& r,
                      float* panel) {
  if (s.unit == 32) panel_strip<2>(p, x, s.w, r, panel);
  else if (s.unit == 64) panel_strip<4>(p, x, s.w, r, panel);
  else panel_strip<8>(p, x, s.w, r, panel);
}

// Rows k .. k + depth - 1 of the tile that more rows share, 32 columns at a time: the smallest
// unit.
template <class W>
static void kn_panel(const Product& p, const Panels<W>& s, u32 n, u32 columns, u32 k, u32 depth,
                     float* panel) {
  float planes[2 * kKnPlanes];
  for (u32 c = n; c < n + columns; c += 32)
    for (u32 from = 0; from < depth; from += kKnPlanes) {
      const u32 count = least(kKnPlanes, depth - from);
      const u64 first = (u64)(c / s.unit) * p.K + k + from;
      float* to = panel + from * kKnPanel + (c - n);
      s.w.planes(first, count, planes);
      for (u32 i = 0; i < count; ++i, to += kKnPanel) {
        F16x v[2];
        s.w.template values<2>(first + i, c % s.unit / 16, planes[i], planes[kKnPlanes + i], v);
        store(to, v[0]);
        store(to + 16, v[1]);
      }
    }
}

// The rectangle of one chunk, cut between panels.
static Rect panel_range(const Product& p, u32 unit, u32 chunk, u32 n_chunks) {
  const u32 units = p.N / unit, blocks = up_to(p.M, kKnRows) / kKnRows;
  const u32 columns = least(n_chunks, units), rows = least(n_chunks / columns, blocks);
  if (chunk >= columns * rows) return {0, 0, 0, 0};
  const u32 c = chunk % columns, r = chunk / columns;
  return {(u32)part_of(units, c, columns) * unit, (u32)part_of(units, c + 1, columns) * unit,
          (u32)part_of(blocks, r, rows) * kKnRows,
          least((u32)part_of(blocks, r + 1, rows) * kKnRows, p.M)};
}
static __attribute__((unused)) Rect panel_owns(const void* params, u32 chunk, u32 n_chunks) {
  const ProductParams* p = quant_params(params);
  return panel_range({p->M, p->K, p->N, nullptr, nullptr}, p->group, chunk, n_chunks);
}
