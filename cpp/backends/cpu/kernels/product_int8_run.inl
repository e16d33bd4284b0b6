// The int8 product of a rectangle: rows that stream the weight, or panels of it for more of them.

static u64 int8_local(const void*) {
  const u64 tile = kInt8TileBytes, stream = kInt8StreamBytes;
  return tile > stream ? tile : stream;
}

// The rows of a rectangle by panels of its columns.
template <bool Int4, class Weight>
static void int8_panels(const Product& p, const Weight& weight, const Int8Activations& a, u32 group,
                        const Rect& r, void* local) {
  const u32 of_row = p.K / group, bytes = Int4 ? 2 : 1;  // codes of a byte
  const u32 slices = (p.K + kInt8Depth - 1) / kInt8Depth;
  const u32 depth = up_to(p.K, slices * 128) / slices;
  Int8Slice s;
  s.bytes = (char*)local;
  s.planes.scales = (float*)(s.bytes + kInt8Panels * kInt8PanelBytes);
  s.planes.offsets = s.planes.scales + kInt8Panels * kInt8PlaneFloats;
  s.runs = group / 32;
  s.width = p.N;
  const u64 next = 16 * kInt8Panels * weight.row_bytes;  // bytes of so many columns
  s.fetched = (u32)round_up(next / (of_row * int8_fetching(r.m1 - r.m0)), 64);
  for (u32 n = r.n0; n < r.n1; n += 16 * kInt8Panels) {
    weight.fetch((u64)(n + 16 * kInt8Panels) * of_row, 16 * kInt8Panels * of_row);
    s.ahead = weight.bytes + n * weight.row_bytes + next;
    for (u32 k = 0; k < p.K; k += depth) {
      const u32 length = least(depth, p.K - k), first = k / group;
      s.groups = length / group;
      s.columns = least(16 * kInt8Panels, r.n1 - n);
      for (u32 c = 0; c < s.columns; c += 16) {
        const u32 columns = least(16, s.columns - c), panel = c / 16;
        int8_panel<Int4>(weight.bytes + (u64)(n + c) * weight.row_bytes + k / bytes,
                         weight.row_bytes, columns, length / bytes / 4,
                         s.bytes + panel * kInt8PanelBytes);
        weight.planes((u64)(n + c) * of_row + first, of_row, s.groups, columns,
                      Int8Planes{s.planes.scales + panel * kInt8PlaneFloats,
                                 s.planes.offsets + panel * kInt8PlaneFloats});
      }
      s.first = k == 0;
      s.out = p.out + (u64)r.m0 * p.N + n;
      s.a = int8_from(a, r.m0, first, group);
      int8_slice<Int4>(s, r.m1 - r.m0);
      s.ahead += (u64)s.groups * int8_fetching(r.m1 - r.m0) * s.fetched;
    }
  }
}

// A weight gives its bytes by row, and the planes of sixteen columns: weight.bytes is the first
// row, weight.row_bytes their distance; weight.planes(flat group of the first column's first,
// groups of a row, groups, columns, planes) writes them, weight.fetch(flat group, groups) fetches
// them ahead.
template <bool Int4, class Weight>
static void int8_rectangle(const Product& p, const Weight& weight, const Int8Activations& a,
                           u32 group, const Rect& r, void* local) {
  if (r.n0 == r.n1) return;
#if ACCEL_ISA_avx512 || ACCEL_ISA_avx2
  if (r.m1 - r.m0 <= kInt8StreamRows) {
    if (group == 32) return int8_stream<Int4, 1>(p, weight, a, r, local);
    if constexpr (Int4) {
      if (group == 64) return int8_stream<true, 2>(p, weight, a, r, local);
      return int8_stream<true, 4>(p, weight, a, r, local);
    }
  }
#endif
  int8_panels<Int4>(p, weight, a, group, r, local);
}
