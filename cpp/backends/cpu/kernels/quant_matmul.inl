// quant_matmul: int8 weights in blocks of 32 of the flat index, one f16 scale a block; a weight is
// scale * quant.

struct Int8Weight {
  const signed char* q;
  const f16* scales;
};
// Rows of whole blocks: the weight can be read as stored by one activation row.
struct Int8Rows {
  Int8Weight any;
};

static ACCEL_INLINE void dequant(const Int8Weight& s, u64 i, u32 count, float* dst) {
  while (count) {
    const u32 length = least(count, 32 - (u32)(i % 32));
    const F16x scale = splat(widen_one(s.scales[i / 32]));
    const signed char* q = s.q + i;
    if (length >= 16) {
      store(dst, scale * load(q));
      store(dst + length - 16, scale * load(q + length - 16));
    } else {
      store(dst, scale * load_n(q, (int)length));
    }
    i += length, dst += length, count -= length;
  }
}
// i and count are multiples of 32.
static void dequant(const Int8Rows& s, u64 i, u32 count, float* dst) {
  enum { kTogether = 64 };  // blocks whose scales are widened at a time
  float scale[kTogether];
  u64 b = i / 32;
  for (u32 left = count / 32; left;) {
    const u32 blocks = least(kTogether, left);
    widen(s.any.scales + b, blocks, scale);
    const signed char* q = s.any.q + b * 32;
    for (u32 j = 0; j < blocks; ++j, q += 32, dst += 32) {
      const F16x all = splat(scale[j]);
      store(dst, all * load(q));
      store(dst + 16, all * load(q + 16));
    }
    b += blocks, left -= blocks;
  }
}

// ---------------------------------------------------------------- few rows

#if ACCEL_ISA_avx512
struct FewInt8 {
  const signed char* q[4];
  const float* s[4];
  ACCEL_INLINE void pair(int c, u32 i, V* v) const {
    const V scale = v_set(s[c][i]);
    v[0] = v_mul(scale, v_load(q[c] + i * 32));
    v[1] = v_mul(scale, v_load(q[c] + i * 32 + 16));
  }
};
static void few_prepare(const Int8Rows& w, const FewColumns& b) {
  const u32 blocks = b.K / 32;
  widen(w.any.scales + (u64)b.n * blocks, b.columns * blocks, b.planes);
}
static void few_first(const Int8Rows& weight, const FewColumns& b, u32 rows, const NkTile& t) {
  FewInt8 w;
  for (u32 i = 0; i < 4; ++i) {
    const u32 n = few_column(b, i);
    w.q[i] = weight.any.q + (u64)n * b.K + b.k;
    w.s[i] = b.planes + ((n - b.n) * b.K + b.k) / 32;
  }
  few_tile_of(rows, t, w, b.wide);
}
static ACCEL_INLINE void few_fetch(const Int8Rows& s, u64 i, u64 count) {
  fetch_bytes(s.any.q + i, count);
  fetch_bytes(s.any.scales + i / 32, count / 32 * sizeof(f16));
}
#endif

template <class X>
static void nk_stream(const Product& p, const X* x, const Int8Rows& weight, const Rect& r,
                      float* local) {
  nk_pack_rows(x, p.K, 0, 1, local);
  const u32 groups = p.K / 32;
  float* scales = local + nk_width(p.K);  // [kNkStreamRows][groups]
  const u64 ahead = bytes_ahead((u64)kNkStreamRows * p.K, 2 * kNkAhead);
  for (u32 n = r.n0; n < r.n1; n += kNkStreamRows) {
    widen(weight.any.scales + (u64)n * groups, least(kNkStreamRows, r.n1 - n) * groups, scales);
    const signed char* q[kNkStreamRows];
    const float* s[kNkStreamRows];
    F16x a[kNkStreamRows];
    for (u32 i = 0; i < kNkStreamRows; ++i) {
      const u32 row = stream_row(n, i, r.n1);
      q[i] = weight.any.q + (u64)row * p.K;
      s[i] = scales + (row - n) * groups;
      a[i] = splat(0.0f);
    }
    const char* next = (const char*)q[0] + ahead;
    for (u32 g = 0; g < groups; ++g, next += kNkStreamRows * 32) {
      for (u32 b = 0; b < kNkStreamRows * 32; b += 64) __builtin_prefetch(next + b);
      const F16x x0 = load(local + g * 32), x1 = load(local + g * 32 + 16);
      for (u32 i = 0; i < kNkStreamRows; ++i) {
        const F16x scale = splat(s[i][g]);
        a[i] = fma(x0, scale * load(q[i] + g * 32), a[i]);
        a[i] = fma(x1, scale * load(q[i] + g * 32 + 16), a[i]);
      }
    }
    stream_store(p, a, n, r.n1);
  }
}

static ACCEL_INLINE Int8Weight int8_weight(const KernelArgs* args) {
  return {(const signed char*)args->buf[1], (const f16*)args->buf[2]};
}
static ACCEL_INLINE Product int8_product(const KernelArgs* args) {
  return product_of(args, nullptr, args->buf[3]);
}

template <class X>
static void nk_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int8_product(args);
  const Rect r = product_range(p, kNkRows, chunk, n_chunks);
  quant_nk_run<X>(p, args, Int8Rows{int8_weight(args)}, r, local);
}
template <class X>
static void nk_any_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int8_product(args);
  const Rect r = product_range(p, kNkRows, chunk, n_chunks);
  quant_nk_run<X>(p, args, int8_weight(args), r, local);
}
template <class X>
static void kn_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int8_product(args);
  const Rect r = product_range(p, kKnRows, chunk, n_chunks);
  quant_kn_run<X>(p, args, int8_weight(args), r, local);
}

// The weight as the int8 product reads it.
struct Int8Columns {
  const char* bytes;
  u64 row_bytes;
  const f16* scales;
  ACCEL_INLINE void planes(u64 first, u32 of_row, u32 groups, u32 columns,
                           const Int8Planes& to) const {
    int8_plane(scales + first, of_row, groups, columns, to.scales);
  }
  ACCEL_INLINE void fetch(u64 first, u32 groups) const { int8_fetch(scales + first, groups); }
};
static void int8_by_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int8_product(args);
  const Int8Columns w = {(const char*)args->buf[1], p.K, (const f16*)args->buf[2]};
  int8_rectangle<false>(p, w, int8_activations(args), 32,
                        product_range(p, kInt8Rows, chunk, n_chunks), local);
}

// Packed: one block of 32 columns a row.
struct Int8Panels {
  const signed char* q;
  const f16* scales;
  ACCEL_INLINE void planes(u64 row, u32 count, float* to) const { widen(scales + row, count, to); }
  template <int Vectors>
  ACCEL_INLINE void values(u64 row, u32, float scale, float, F16x* v) const {
    for (int i = 0; i < Vectors; ++i) v[i] = splat(scale) * load(q + row * 32 + i * 16);
  }
};
template <class X>
static void kn_int8_panels(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int8_product(args);
  const Int8Weight w = int8_weight(args);
  quant_kn_run<X>(p, args, Panels<Int8Panels>{{w.q, w.scales}, 32},
                  panel_range(p, 32, chunk, n_chunks), local);
}
