// Activations that a quantized product rounds first (CONTRACT E11, E13). f16 and bf16 round to
// nearest even and widen again; the product then is that of the rounded rows. int8 rounds each
// block of a row, groups ascending with integer sums: order int8_group.

enum { kWide, kAsF16, kAsBf16, kAsInt8 };  // QuantMatMulParams::activations
static ACCEL_INLINE const QuantMatMulParams* quant_params(const void* params) {
  return (const QuantMatMulParams*)params;
}

static __attribute__((unused)) bool quant_packs_alike(const void* params, const void* other) {
  const QuantMatMulParams *a = quant_params(params), *b = quant_params(other);
  return a->M == b->M && a->K == b->K && a->group == b->group && a->activations == b->activations;
}

// ---------------------------------------------------------------- f16 and bf16

static ACCEL_INLINE F16x as_f16(F16x v) {
  f16 half[16];
  store(half, v);
  return load(half);
}
static ACCEL_INLINE F16x as_bf16(F16x v) {
  const I16x whole = bits(v), odd = shr<16>(whole) & isplat(1);
  const I16x up = (whole + isplat(0x7fff) + odd) & isplat((int)0xffff0000u);
  return from_bits(select(v == v, up, isplat(0x7fc00000)));
}
template <class X>
static void round_rows(const X* x, u64 count, u32 to, float* out) {
  for (u64 i = 0; i < count; i += 16) {
    const int n = (int)at_most(16, count - i);
    const F16x v = n == 16 ? load(x + i) : load_n(x + i, n);
    const F16x r = to == kAsF16 ? as_f16(v) : as_bf16(v);
    if (n == 16) store(out + i, r);
    else store_n(out + i, r, n);
  }
}

// Rounded rows stand in the command's scratch, in front of what the product itself keeps there.
static ACCEL_INLINE u64 rounded_bytes(const void* params) {
  const QuantMatMulParams* p = quant_params(params);
  return p->activations == kWide ? 0 : round_up((u64)p->M * p->K * 4, 64);
}
// The call of the product over the rounded rows: it reads nothing but the rows and the scratch.
struct RoundedCall {
  KernelArgs args;
  void* rows;
  RoundedCall(const KernelArgs* of) : args(*of), rows(of->shared) {
    args.buf = &rows;
    args.shared = (char*)of->shared + rounded_bytes(of->params);
  }
  RoundedCall(const RoundedCall&) = delete;
};
// Rows m0 .. m1 of a chunk of the packing, rounded, then packed by pack(x, K, m0, m1, to).
template <u32 kRows, class X, class Pack>
static ACCEL_INLINE void pack_rounded(const KernelArgs* args, u32 chunk, u32 n_chunks, Pack pack) {
  const QuantMatMulParams* p = quant_params(args->params);
  const u32 blocks = up_to(p->M, kRows) / kRows;
  const u32 m0 = (u32)part_of(blocks, chunk, n_chunks) * kRows;
  const u32 m1 = least((u32)part_of(blocks, chunk + 1, n_chunks) * kRows, p->M);
  float* rows = (float*)args->shared;
  round_rows((const X*)args->buf[0] + (u64)m0 * p->K, (u64)(m1 - m0) * p->K, p->activations,
             rows + (u64)m0 * p->K);
  if (p->M == 1) return;
  pack(rows, p->K, m0, m1, (float*)((char*)args->shared + rounded_bytes(args->params)));
}
template <class X>
static void quant_nk_pack(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  if (quant_params(args->params)->activations == kWide)
    return nk_pack<X>(args, chunk, n_chunks, local);
  pack_rounded<kNkRows, X>(args, chunk, n_chunks, nk_pack_rows<float>);
}
template <class X>
static void quant_kn_pack(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  if (quant_params(args->params)->activations == kWide)
    return kn_pack<X>(args, chunk, n_chunks, local);
  pack_rounded<kKnRows, X>(args, chunk, n_chunks, kn_pack_rows<float>);
}
static u64 quant_nk_shared(const void* params) {
  return rounded_bytes(params) + nk_shared(params);
}
static u64 quant_kn_shared(const void* params) {
  return rounded_bytes(params) + kn_shared(params);
}

// A product over the rows as they are, or rounded.
template <class X, class Weight>
static void quant_nk_run(const Product& p, const KernelArgs* args, const Weight& w, const Rect& r,
                         void* local) {
  if (quant_params(args->params)->activations == kWide) return nk_run<X>(p, args, w, r, local);
  const RoundedCall call(args);
  nk_run<float>(p, &call.args, w, r, local);
}
template <class X, class Weight>
static void quant_kn_run(const Product& p, const KernelArgs* args, const Weight& w, const Rect& r,
                         void* local) {
  if (quant_params(args->params)->activations == kWide) return kn_run<X>(p, args, w, r, local);
  const RoundedCall call(args);
  kn_run<float>(p, &call.args, w, r, local);
}

// ---------------------------------------------------------------- int8: the rows

// q: the rounded rows. An int4 weight's word of eight codes meets the even four of its
// activations, then the odd four, so they stand in that order. A block that holds NaN or an
// infinity has the scale NaN.
struct Int8Activations {
  signed char* q;  // [M][K]
  float* scale;    // [M][groups]
  int* sum;        // [M][groups]
};
static u64 int8_shared(const void* params) {
  const QuantMatMulParams* p = quant_params(params);
  return (u64)p->M * p->K + (u64)p->M * (p->K / p->group) * 8;
}
static ACCEL_INLINE Int8Activations int8_activations(const KernelArgs* args) {
  const QuantMatMulParams* p = quant_params(args->params);
  const u64 groups = (u64)p->M * (p->K / p->group);
  Int8Activations a;
  a.scale = (float*)args->shared;
  a.sum = (int*)(a.scale + groups);
  a.q = (signed char*)(a.sum + groups);
  return a;
}

template <bool Int4, class X>
static ACCEL_INLINE void int8_block(const X* x, u32 group, signed char* q, float* scale, int* sum) {
  F16x most = splat(0.0f), special = splat(0.0f);
  for (u32 k = 0; k < group; k += 16) {
    const F16x v = load(x + k);
    most = max(max(v, splat(0.0f) - v), most);
    special = special + (v - v);
  }
  const bool finite = sum16(special) == 0.0f;
  const float step = max16(most) / 127.0f;
  *scale = finite ? step : __builtin_nanf("");
  *sum = 0;
  const bool rounds = finite && step != 0.0f;
  for (u32 k = 0; k < group; k += 16) {
    int whole[16] = {};
    if (rounds) {
      const F16x r = min(max(load(x + k) / splat(step), splat(-127.0f)), splat(127.0f));
      // 1.5 * 2^23: the sum's last place is 1, so it rounds half to even.
      istore(whole, bits(r + splat(12582912.0f)) - isplat(0x4b400000));
    }
    for (u32 i = 0; i < 16; ++i) {
      const u32 at = Int4 ? (i & 8) + (i & 1) * 4 + (i & 7) / 2 : i;
      q[k + at] = (signed char)whole[i];
      *sum += whole[i];
    }
  }
}
static u32 int8_chunks(const void* params, u32 threads) {
  const QuantMatMulParams* p = quant_params(params);
  return (u32)at_most(chunks_of((u64)p->M * p->K, kGrain, threads), p->M);
}
template <bool Int4, class X>
static void int8_round(const KernelArgs* args, u32 chunk, u32 n_chunks, void*) {
  const QuantMatMulParams* p = quant_params(args->params);
  const u32 groups = p->K / p->group;
  const Int8Activations a = int8_activations(args);
  const Range r = range_of(p->M, 1, chunk, n_chunks);
  for (u64 m = r.lo; m < r.hi; ++m)
    for (u32 g = 0; g < groups; ++g) {
      const u64 at = m * p->K + (u64)g * p->group, of = m * groups + g;
      int8_block<Int4>((const X*)args->buf[0] + at, p->group, a.q + at, a.scale + of, a.sum + of);
    }
}

// ---------------------------------------------------------------- int8: four products at a time

// Lane i of acc takes the products of the four bytes of lane i of w with the four bytes of x.
// Signed bytes of w count as w + kInt8Bias.
#if ACCEL_ISA_avx512
enum { kInt8Bias = 128 };
template <bool Signed>
static ACCEL_INLINE I16x dot4(I16x acc, I16x w, int x) {
  const VI bytes = Signed ? _mm512_xor_si512(w.p[0], v_iset((int)0x80808080u)) : w.p[0];
  return {{_mm512_dpbusd_epi32(acc.p[0], bytes, v_iset(x))}};
}
#elif ACCEL_ISA_avx2
enum { kInt8Bias = 0 };
template <bool Signed>
static ACCEL_INLINE I16x dot4(I16x acc, I16x w, int x) {
  const VI xs = v_iset(x);
  for (int i = 0; i < kParts; ++i) {
    // Two products of at most 128 * 127 fit in 16 bits.
    const VI pairs =
        Signed ? _mm256_maddubs_epi16(_mm256_abs_epi8(w.p[i]), _mm256_sign_epi8(xs, w.p[i]))
               : _mm256_maddubs_epi16(w.p[i], xs);
    acc.p[i] = v_iadd(acc.p[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  return acc;
}
#else
enum { kInt8Bias = 0 };
template <bool Signed>
static ACCEL_INLINE I16x dot4(I16x acc, I16x w, int x) {
  for (int i = 0; i < kParts; ++i)
    for (int j = 0; j < 4; ++j) {
      const VI byte = (VI)((VU)w.p[i] << (24 - 8 * j));
      const VI wide = Signed ? byte >> 24 : (VI)((VU)byte >> 24);
      acc.p[i] = v_iadd(acc.p[i], wide * v_iset((int)(signed char)(x >> (8 * j))));
    }
  return acc;
}
#endif

// ---------------------------------------------------------------- int8: tiles of sixteen columns

enum {
  kInt8Depth = 512,  // of K in one tile; a multiple of every group
  kInt8Rows = 4,
  kInt8TileBytes = kInt8Depth * 16 + 2 * 16 * (kInt8Depth / 32) * 4,
};
static u64 int8_local(const void*) {
  return kInt8TileBytes;
}

// A slice of K of sixteen columns: words[word][column], scales and offsets [group][column].
struct Int8Tile {
  u32* words;
  float *scales, *offsets;
};
static ACCEL_INLINE Int8Tile int8_tile(void* local) {
  u32* words = (u32*)local;
  float* scales = (float*)((char*)local + kInt8Depth * 16);
  return {words, scales, scales + 16 * (kInt8Depth / 32)};
}

#if ACCEL_ISA_avx512
// Sixteen words of sixteen rows, transposed.
static ACCEL_INLINE void int8_transpose(const char* rows, u64 row_bytes, u32* to) {
  VI a[16], b[16];
  for (int i = 0; i < 16; ++i) a[i] = _mm512_loadu_si512(rows + (u64)i * row_bytes);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm512_unpacklo_epi64(b[i + j], b[i + j + 2]);
      a[i + 2 * j + 1] = _mm512_unpackhi_epi64(b[i + j], b[i + j + 2]);
    }
  for (int j = 0; j < 4; ++j) {
    const VI low = _mm512_shuffle_i32x4(a[j], a[j + 4], 0x88);
    const VI high = _mm512_shuffle_i32x4(a[j], a[j + 4], 0xdd);
    const VI low2 = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0x88);
    const VI high2 = _mm512_shuffle_i32x4(a[j + 8], a[j + 12], 0xdd);
    _mm512_storeu_si512(to + 16 * j, _mm512_shuffle_i32x4(low, low2, 0x88));
    _mm512_storeu_si512(to + 16 * (j + 8), _mm512_shuffle_i32x4(low, low2, 0xdd));
    _mm512_storeu_si512(to + 16 * (j + 4), _mm512_shuffle_i32x4(high, high2, 0x88));
    _mm512_storeu_si512(to + 16 * (j + 12), _mm512_shuffle_i32x4(high, high2, 0xdd));
  }
}
#endif

// Words of `columns` rows, the first at `rows`; columns that do not exist are zero.
static void int8_words(const char* rows, u64 row_bytes, u32 columns, u32 words, u32* to) {
  u32 first = 0;
#if ACCEL_ISA_avx512
  if (columns == 16)
    for (; first + 16 <= words; first += 16)
      int8_transpose(rows + 4 * (u64)first, row_bytes, to + 16 * (u64)first);
#endif
  for (u32 c = 0; c < 16; ++c)
    for (u32 i = first; i < words; ++i) {
      u32 word = 0;
      if (c < columns) __builtin_memcpy(&word, rows + c * row_bytes + 4 * (u64)i, 4);
      to[16 * i + c] = word;
    }
}

// One slice of K: rows of x by the columns of a tile.
struct Int8Slice {
  Int8Tile tile;
  u32 groups, words;  // of the slice; words of one group
  u32 columns;
  bool first;
};

template <int R, bool Int4>
static void int8_rows(const Int8Slice& s, const signed char* const* q, const float* const* scale,
                      const int* const* sum, float* const* out) {
  F16x acc[R];
  for (int r = 0; r < R; ++r) acc[r] = s.first ? splat(0.0f) : load_n(out[r], (int)s.columns);
  u32 at = 0;  // words of the tile
  for (u32 g = 0; g < s.groups; ++g) {
    I16x dot[R];
    for (int r = 0; r < R; ++r) dot[r] = isplat(0);
    for (u32 end = at + s.words; at < end; ++at) {
      const I16x w = iload((const int*)s.tile.words + 16 * at);
      const I16x low = Int4 ? w & isplat(0x0f0f0f0f) : w;
      const I16x high = shr<4>(w) & isplat(0x0f0f0f0f);
      ACCEL_UNROLL for (int r = 0; r < R; ++r) {
        int x[2];
        __builtin_memcpy(x, q[r] + (Int4 ? 8 : 4) * (u64)at, Int4 ? 8 : 4);
        dot[r] = dot4<!Int4>(dot[r], low, x[0]);
        if (Int4) dot[r] = dot4<false>(dot[r], high, x[1]);
      }
    }
    const F16x ws = load(s.tile.scales + 16 * g), wb = load(s.tile.offsets + 16 * g);
    for (int r = 0; r < R; ++r) {
      const int total = sum[r][g];
      const I16x whole = Int4 ? dot[r] : dot[r] - isplat(kInt8Bias * total);
      acc[r] = fma(ws * splat(scale[r][g]), to_float(whole), acc[r]);
      if (Int4) acc[r] = fma(wb, splat(scale[r][g] * (float)total), acc[r]);
    }
  }
  for (int r = 0; r < R; ++r) {
    if (s.columns == 16) store(out[r], acc[r]);
    else store_n(out[r], acc[r], (int)s.columns);
  }
}

// Rows m0 .. m1 by the columns n .. n + 16 of a slice that begins at k.
template <bool Int4>
static void int8_slice(const Product& p, const Int8Slice& s, const Int8Activations& a, u32 group,
                       u32 k, u32 n, u32 m0, u32 m1) {
  const u32 groups = p.K / group;
  for (u32 m = m0; m < m1;) {
    const signed char* q[kInt8Rows];
    const float* scale[kInt8Rows];
    const int* sum[kInt8Rows];
    float* out[kInt8Rows];
    const u32 rows = m1 - m >= kInt8Rows ? (u32)kInt8Rows : 1;
    for (u32 r = 0; r < rows; ++r) {
      q[r] = a.q + (u64)(m + r) * p.K + k;
      scale[r] = a.scale + (u64)(m + r) * groups + k / group;
      sum[r] = a.sum + (u64)(m + r) * groups + k / group;
      out[r] = p.out + (u64)(m + r) * p.N + n;
    }
    if (rows == kInt8Rows) int8_rows<kInt8Rows, Int4>(s, q, scale, sum, out);
    else int8_rows<1, Int4>(s, q, scale, sum, out);
    m += rows;
  }
}

// The product of a rectangle. A weight gives its bytes by row, and fills the planes of a tile:
// weight.bytes is the first row, weight.row_bytes their distance, weight.planes(flat group of a
// column's first, groups, column of the tile, tile) writes that column.
template <bool Int4, class Weight>
static void int8_rectangle(const Product& p, const Weight& weight, const Int8Activations& a,
                           u32 group, const Rect& r, void* local) {
  const Int8Tile tile = int8_tile(local);
  const u32 of_row = p.K / group, codes = Int4 ? 8 : 4;
  if (r.n0 == r.n1) return;
  for (u32 n = r.n0; n < r.n1; n += 16) {
    const u32 columns = least(16, r.n1 - n);
    for (u32 k = 0; k < p.K; k += kInt8Depth) {
      const u32 depth = least(kInt8Depth, p.K - k);
      int8_words(weight.bytes + (u64)n * weight.row_bytes + k / codes * 4, weight.row_bytes,
                 columns, depth / codes, tile.words);
      for (u32 c = 0; c < columns; ++c)
        weight.planes((u64)(n + c) * of_row + k / group, depth / group, c, tile);
      const Int8Slice s = {tile, depth / group, group / codes, columns, k == 0};
      int8_slice<Int4>(p, s, a, group, k, n, r.m0, r.m1);
    }
  }
}
