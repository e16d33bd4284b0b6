// int4_matvec and int4_matmul: eight codes a word, low nibble first; groups of 32, 64 or 128 of the
// flat index with a scale and a zero point or a bias each. A weight is dequantised once in f32:
// fma(s, code, b); or (code - z) * s, each operation rounded, but z where s is 0.

template <class Plane>
struct Int4Weight {
  const u32* codes;
  const Plane* scales;
  const Plane* offsets;  // zeros or biases
  u32 shift;             // group = 1 << shift
  bool zeros;
};
// Rows of whole groups: the weight can be read as stored by one activation row.
template <class Plane>
struct Int4Rows {
  Int4Weight<Plane> any;
};

#if ACCEL_ISA_avx512
// The sixteen weights a group can have, looked up by the codes.
typedef V Int4Table;
// `plain`: no scale is 0, so zero points need no choice.
static ACCEL_INLINE Int4Table int4_table(float s, float offset, bool zeros, bool plain = false) {
  const V code = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  if (!zeros) return v_fma(v_set(s), code, v_set(offset));
  const V centred = v_sub(code, v_set(offset));
  if (plain) return v_mul(centred, v_set(s));
  return v_select(v_eq(v_set(s), v_set(0.0f)), v_set(offset), v_mul(centred, v_set(s)));
}
// Two words: lane v sees word v / 8 shifted by 4 (v mod 8). The look-up reads the low four bits of
// its index.
static ACCEL_INLINE F16x int4_weights(const u32* w, Int4Table table) {
  const VI shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const VI words = _mm512_mask_set1_epi32(_mm512_set1_epi32((int)w[0]), 0xff00, (int)w[1]);
  return {{_mm512_permutexvar_ps(_mm512_srlv_epi32(words, shifts), table)}};
}
static ACCEL_INLINE VI int4_quad(const u32* w) {
  long long both;
  __builtin_memcpy(&both, w, 8);
  return _mm512_set1_epi64(both);
}
typedef u64 U64Any __attribute__((aligned(4), may_alias));
// The codes of two words, each in the low four bits of a lane. The words are an operand in memory,
// which compilers do not see through a broadcast.
static ACCEL_INLINE VI int4_codes(const u32* w) {
  const VI at = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
  VI codes;
  asm("vpmultishiftqb %2%{1to8%}, %1, %0" : "=v"(codes) : "v"(at), "m"(*(const U64Any*)w));
  return codes;
}
// 32 codes: half of them in the instruction that takes the port of the look-up, half beside it.
static ACCEL_INLINE void int4_pair(const u32* w, Int4Table table, float* dst) {
  v_store(dst, _mm512_permutexvar_ps(int4_codes(w), table));
  store(dst + 16, int4_weights(w + 2, table));
}
static ACCEL_INLINE float int4_weight(u32 code, Int4Table table) {
  return _mm512_cvtss_f32(_mm512_permutexvar_ps(_mm512_set1_epi32((int)code), table));
}
#else
// constant: a group of zero points whose scale is 0.
struct Int4Table {
  F16x s, offset;
  bool zeros, constant;
};
static ACCEL_INLINE Int4Table int4_table(float s, float offset, bool zeros) {
  return {splat(s), splat(offset), zeros, zeros && s == 0.0f};
}
static ACCEL_INLINE F16x int4_values(F16x code, const Int4Table& t) {
  if (t.constant) return t.offset;
  return t.zeros ? (code - t.offset) * t.s : fma(t.s, code, t.offset);
}
#if ACCEL_ISA_avx2
static ACCEL_INLINE F16x int4_codes(const u32* w) {
  const VI shifts = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28), low = v_iset(15);
  I16x code;
  for (int i = 0; i < 2; ++i) code.p[i] = _mm256_srlv_epi32(v_iset((int)w[i]), shifts) & low;
  return to_float(code);
}
#else
// Four codes of one half word, each taken where it stands and scaled down: no shift by lane is
// needed.
static ACCEL_INLINE F16x int4_codes(const u32* w) {
  const VI at = {0xf, 0xf0, 0xf00, 0xf000};
  const V down = {1.0f, 0x1p-4f, 0x1p-8f, 0x1p-12f};
  F16x code;
  for (int i = 0; i < 4; ++i)
    code.p[i] = v_from_int(v_iset((int)(w[i / 2] >> (16 * (i % 2)))) & at) * down;
  return code;
}
#endif
static ACCEL_INLINE F16x int4_weights(const u32* w, const Int4Table& t) {
  return int4_values(int4_codes(w), t);
}
static ACCEL_INLINE void int4_pair(const u32* w, const Int4Table& t, float* dst) {
  store(dst, int4_weights(w, t));
  store(dst + 16, int4_weights(w + 2, t));
}
static ACCEL_INLINE float int4_weight(u32 code, const Int4Table& t) {
  return int4_values(splat((float)code), t).p[0][0];
}
#endif

// Weights i .. i + count - 1, all of one group. Whole words only where all their codes are wanted.
static ACCEL_INLINE void int4_run(const u32* codes, u64 i, u32 count, Int4Table table, float* dst) {
  u32 j = 0;
  for (; j < count && (i + j) % 8; ++j)
    dst[j] = int4_weight(codes[(i + j) / 8] >> (4 * ((i + j) % 8)) & 15, table);
  for (; j + 16 <= count; j += 16) store(dst + j, int4_weights(codes + (i + j) / 8, table));
  if (j + 8 <= count) {
    const u32 twice[2] = {codes[(i + j) / 8], 0};
    store(dst + j, int4_weights(twice, table));
    j += 8;
  }
  for (; j < count; ++j)
    dst[j] = int4_weight(codes[(i + j) / 8] >> (4 * ((i + j) % 8)) & 15, table);
}

template <class Plane>
static ACCEL_INLINE void dequant(const Int4Weight<Plane>& s, u64 i, u32 count, float* dst) {
  const u32 group = 1u << s.shift;
  while (count) {
    const u64 g = i >> s.shift;
    const u32 length = least(count, group - (u32)(i & (group - 1)));
    const float scale = widen_one(s.scales[g]), offset = widen_one(s.offsets[g]);
    int4_run(s.codes, i, length, int4_table(scale, offset, s.zeros), dst);
    i += length, dst += length, count -= length;
  }
}
// `Pairs` of 32 codes a group.
template <int Pairs, bool Zeros>
static ACCEL_INLINE void int4_groups(const u32* codes, const float* scale, const float* offset,
                                     u32 groups, float* dst) {
  for (u32 g = 0; g < groups; ++g) {
    const Int4Table table = int4_table(scale[g], offset[g], Zeros);
    ACCEL_UNROLL for (int j = 0; j < Pairs; ++j, codes += 4, dst += 32)
        int4_pair(codes, table, dst);
  }
}
template <int Pairs, class Plane>
static ACCEL_INLINE void int4_blocks(const Int4Weight<Plane>& w, u64 i, u32 count, float* dst) {
  enum { kTogether = 64 };  // groups whose planes are widened at a time
  float scale[kTogether], offset[kTogether];
  u64 g = i >> w.shift;
  for (u32 left = count >> w.shift; left;) {
    const u32 groups = least(kTogether, left);
    widen(w.scales + g, groups, scale);
    widen(w.offsets + g, groups, offset);
    const u32* codes = w.codes + g * Pairs * 4;
    if (w.zeros) int4_groups<Pairs, true>(codes, scale, offset, groups, dst);
    else int4_groups<Pairs, false>(codes, scale, offset, groups, dst);
    g += groups, left -= groups, dst += groups * Pairs * 32;
  }
}
// i and count are multiples of the group.
template <class Plane>
static void dequant(const Int4Rows<Plane>& s, u64 i, u32 count, float* dst) {
  if (s.any.shift == 5) int4_blocks<1>(s.any, i, count, dst);
  else if (s.any.shift == 6) int4_blocks<2>(s.any, i, count, dst);
  else int4_blocks<4>(s.any, i, count, dst);
}

// ---------------------------------------------------------------- few rows

#if ACCEL_ISA_avx512
template <bool Zeros>
struct FewInt4 {
  const u32* codes[4];
  const float* s[4];
  u64 apart;  // from a scale to its offset
  ACCEL_INLINE void pair(int c, u32 i, V* v) const {
    const Int4Table table = int4_table(s[c][i], s[c][i + apart], Zeros);
    v[0] = _mm512_permutexvar_ps(int4_codes(codes[c] + i * 4), table);
    v[1] = _mm512_permutexvar_ps(int4_codes(codes[c] + i * 4 + 2), table);
  }
};
// Scales and offsets of each 32 weights.
template <class Plane>
static ACCEL_INLINE void few_plane(const Plane* plane, u32 count, u32 times, float* to) {
  widen(plane, count, to);
  for (u32 i = times == 1 ? 0 : count * times; i-- > 0;) to[i] = to[i / times];
}
template <class Plane>
static void few_prepare(const Int4Rows<Plane>& w, const FewColumns& b) {
  const u32 groups = b.K >> w.any.shift, count = b.columns * groups;
  few_plane(w.any.scales + (u64)b.n * groups, count, 1u << (w.any.shift - 5), b.planes);
  few_plane(w.any.offsets + (u64)b.n * groups, count, 1u << (w.any.shift - 5),
            b.planes + few_planes(b.K));
}
template <bool Zeros>
static void few_int4(const u32* codes, const FewColumns& b, u32 rows, const NkTile& t) {
  FewInt4<Zeros> w;
  for (u32 i = 0; i < 4; ++i) {
    const u32 n = few_column(b, i);
    w.codes[i] = codes + ((u64)n * b.K + b.k) / 8;
    w.s[i] = b.planes + ((n - b.n) * b.K + b.k) / 32;
  }
  w.apart = few_planes(b.K);
  few_tile_of(rows, t, w, b.wide);
}
template <class Plane>
static void few_first(const Int4Rows<Plane>& weight, const FewColumns& b, u32 rows,
                      const NkTile& t) {
  if (weight.any.zeros) few_int4<true>(weight.any.codes, b, rows, t);
  else few_int4<false>(weight.any.codes, b, rows, t);
}
template <class Plane>
static ACCEL_INLINE void few_fetch(const Int4Rows<Plane>& s, u64 i, u64 count) {
  const u64 first = i >> s.any.shift, planes = (count >> s.any.shift) * sizeof(Plane);
  fetch_bytes(s.any.codes + i / 8, count / 2);
  fetch_bytes(s.any.scales + first, planes);
  fetch_bytes(s.any.offsets + first, planes);
}
#endif

// ---------------------------------------------------------------- one row against codes as stored

// Scales of the rows that a stream reads together, widened, [kNkStreamRows][groups]; the offsets
// stand `apart` behind them.
struct Int4Planes {
  float* s;
  u64 apart;
  u32 groups;  // of a row
};
template <class Plane>
static ACCEL_INLINE void int4_planes(const Int4Weight<Plane>& w, const Int4Planes& to, u32 n,
                                     u32 rows) {
  widen(w.scales + (u64)n * to.groups, rows * to.groups, to.s);
  widen(w.offsets + (u64)n * to.groups, rows * to.groups, to.s + to.apart);
}

#if ACCEL_ISA_avx512
// Both words of sixteen codes are broadcast as one quadword, so lane 2 i + w sees word w, and a
// shift by 4 i puts code 8 w + i in its low nibble. x is brought into the same order once, and the
// tree takes it into account.
static ACCEL_INLINE void int4_arrange(const float* x, u32 K, float* to) {
  const VI from = _mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15);
  for (u32 k = 0; k < K; k += 16) v_store(to + k, _mm512_permutexvar_ps(from, v_load(x + k)));
}
static ACCEL_INLINE V4 int4_trees(V a, V b, V c, V d) {
  const V p = add_neighbours(a, b), q = add_neighbours(c, d);                       // v + (v + 8)
  const V r = _mm512_shuffle_f32x4(p, q, 0x44) + _mm512_shuffle_f32x4(p, q, 0xee);  // + (v + 4)
  const __m256 low = _mm512_castps512_ps256(_mm512_shuffle_f32x4(r, r, 0x08));
  const __m256 high = _mm512_castps512_ps256(_mm512_shuffle_f32x4(r, r, 0x0d));
  const __m256 t = low + high;  // + (v + 2)
  const __m128 u = _mm256_castps256_ps128(t), v = _mm256_extractf128_ps(t, 1);
  return (V4)(_mm_shuffle_ps(u, v, 0x88) + _mm_shuffle_ps(u, v, 0xdd));  // + (v + 1)
}

// Per is the number of 32-code steps of a group.
template <int Per>
static ACCEL_INLINE void int4_rows(const Product& p, const u32* codes, const float* x, u32 n,
                                   u32 n1, const Int4Planes& planes, bool zeros, bool plain) {
  const VI shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  const u32 words = p.K / 8;
  const u32* c[4];
  const float* s[4];
  V a[4];
  for (int i = 0; i < 4; ++i) {
    const u32 r = stream_row(n, (u32)i, n1);
    c[i] = codes + (u64)r * words;
    s[i] = planes.s + (u64)(r - n) * planes.groups;
    a[i] = v_set(0.0f);
  }
  const char* next = (const char*)c[0] + bytes_ahead((u64)4 * words * 4, kNkAhead);
  for (u64 g = 0; g < planes.groups; ++g) {
    V table[4];
    for (int i = 0; i < 4; ++i)
      table[i] = int4_table(s[i][g], s[i][g + planes.apart], zeros, plain);
    for (int j = 0; j < Per; ++j, x += 32, next += 64) {
      __builtin_prefetch(next);  // four rows take one line a step
      const V x0 = v_load(x), x1 = v_load(x + 16);
      for (int i = 0; i < 4; ++i) {
        const VI low = _mm512_srlv_epi32(int4_quad(c[i]), shifts);
        const VI high = _mm512_srlv_epi32(int4_quad(c[i] + 2), shifts);
        a[i] = v_fma(x0, _mm512_permutexvar_ps(low, table[i]), a[i]);
        a[i] = v_fma(x1, _mm512_permutexvar_ps(high, table[i]), a[i]);
        c[i] += 4;
      }
    }
  }
  put_results(p, int4_trees(a[0], a[1], a[2], a[3]), n, n1);
}
#else
static ACCEL_INLINE void int4_arrange(const float* x, u32 K, float* to) {
  widen(x, K, to);
}

template <int Per>
static ACCEL_INLINE void int4_rows(const Product& p, const u32* codes, const float* x, u32 n,
                                   u32 n1, const Int4Planes& planes, bool zeros, bool) {
  const u32 words = p.K / 8;
  const u32* c[kNkStreamRows];
  const float* s[kNkStreamRows];
  F16x a[kNkStreamRows];
  for (u32 i = 0; i < kNkStreamRows; ++i) {
    const u32 r = stream_row(n, i, n1);
    c[i] = codes + (u64)r * words;
    s[i] = planes.s + (u64)(r - n) * planes.groups;
    a[i] = splat(0.0f);
  }
  const char* next = (const char*)c[0] + bytes_ahead((u64)kNkStreamRows * words * 4, kNkAhead);
  for (u64 g = 0; g < planes.groups; ++g, next += kNkStreamRows * Per * 16) {
    for (u32 b = 0; b < kNkStreamRows * Per * 16; b += 64) __builtin_prefetch(next + b);
    for (u32 i = 0; i < kNkStreamRows; ++i) {
      const Int4Table table = int4_table(s[i][g], s[i][g + planes.apart], zeros);
      for (int j = 0; j < 2 * Per; ++j, c[i] += 2)
        a[i] = fma(load(x + j * 16), int4_weights(c[i], table), a[i]);
    }
    x += Per * 32;
  }
  stream_store(p, a, n, n1);
}
#endif

// No scale of the rows is 0. Behind the last there may be anything: it only costs the slower form.
static ACCEL_INLINE bool int4_no_zero_scale(const Int4Planes& planes, u32 rows) {
  M16x zero = lanes_below(0);
  for (u32 i = 0; i < rows * planes.groups; i += 16)
    zero = zero | (load(planes.s + i) == splat(0.0f));
  return !any(zero);
}
template <int Per, class Plane>
static void int4_stream(const Product& p, const Int4Weight<Plane>& w, const Rect& r, const float* x,
                        const Int4Planes& planes) {
  for (u32 n = r.n0; n < r.n1; n += kNkStreamRows) {
    const u32 rows = least(kNkStreamRows, r.n1 - n);
    int4_planes(w, planes, n, rows);
    // The planes of the next rows: the whole block needs them at once.
    const u64 next = (u64)(n + kNkStreamRows) * planes.groups;
    for (u32 i = 0; i < kNkStreamRows * planes.groups; i += 64 / sizeof(Plane)) {
      __builtin_prefetch(w.scales + next + i);
      __builtin_prefetch(w.offsets + next + i);
    }
    if (!w.zeros) int4_rows<Per>(p, w.codes, x, n, r.n1, planes, false, true);
    else if (int4_no_zero_scale(planes, rows))
      int4_rows<Per>(p, w.codes, x, n, r.n1, planes, true, true);
    else int4_rows<Per>(p, w.codes, x, n, r.n1, planes, true, false);
  }
}

template <class Plane>
static void nk_stream(const Product& p, const float* x, const Int4Rows<Plane>& weight,
                      const Rect& r, float* local) {
  const u32 groups = p.K >> weight.any.shift;
  float* planes = local + nk_width(p.K);
  const Int4Planes to = {planes, up_to(kNkStreamRows * groups, 16), groups};
  int4_arrange(x, p.K, local);
  if (weight.any.shift == 5) int4_stream<1>(p, weight.any, r, local, to);
  else if (weight.any.shift == 6) int4_stream<2>(p, weight.any, r, local, to);
  else int4_stream<4>(p, weight.any, r, local, to);
}

// ---------------------------------------------------------------- kernels

template <class Plane>
static ACCEL_INLINE Int4Weight<Plane> int4_weight_of(const KernelArgs* args) {
  const ProductParams* p = (const ProductParams*)args->params;
  return {(const u32*)args->buf[1], (const Plane*)args->buf[2],
          (const Plane*)args->buf[p->zeros ? 3 : 4],
          p->group == 32   ? 5u
          : p->group == 64 ? 6u
                           : 7u,
          p->zeros != 0};
}
static ACCEL_INLINE Product int4_product(const KernelArgs* args) {
  return product_of(args, nullptr, args->buf[5]);
}

template <class Plane>
static void nk_int4(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int4_product(args);
  const Rect r = product_range(p, kNkRows, chunk, n_chunks);
  quant_nk_run<float>(p, args, Int4Rows<Plane>{int4_weight_of<Plane>(args)}, r, local);
}
template <class Plane>
static void nk_any_int4(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int4_product(args);
  const Rect r = product_range(p, kNkRows, chunk, n_chunks);
  quant_nk_run<float>(p, args, int4_weight_of<Plane>(args), r, local);
}
template <class Plane>
static void kn_int4(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int4_product(args);
  const Rect r = product_range(p, kKnRows, chunk, n_chunks);
  quant_kn_run<float>(p, args, int4_weight_of<Plane>(args), r, local);
}

// The weight as the int8 product reads it: s * code + b.
template <class Plane>
struct Int4Columns {
  const char* bytes;
  u64 row_bytes;
  Int4Weight<Plane> weight;
  ACCEL_INLINE void planes(u64 first, u32 of_row, u32 groups, u32 columns,
                           const Int8Planes& to) const {
    int8_plane(weight.scales + first, of_row, groups, columns, to.scales);
    int8_plane(weight.offsets + first, of_row, groups, columns, to.offsets);
    if (weight.zeros) int8_from_zeros(to, groups);
  }
  ACCEL_INLINE void fetch(u64 first, u32 groups) const {
    int8_fetch(weight.scales + first, groups);
    int8_fetch(weight.offsets + first, groups);
  }
};
template <class Plane>
static void int4_by_int8(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int4_product(args);
  const Int4Weight<Plane> weight = int4_weight_of<Plane>(args);
  const Int4Columns<Plane> w = {(const char*)weight.codes, p.K / 2, weight};
  int8_rectangle<true>(p, w, int8_activations(args), 1u << weight.shift,
                       product_range(p, kInt8Rows, chunk, n_chunks), local);
}

// Packed: one group of columns a row.
template <class Plane>
struct Int4Panels {
  Int4Weight<Plane> w;
  ACCEL_INLINE void planes(u64 row, u32 count, float* to) const {
    widen(w.scales + row, count, to);
    widen(w.offsets + row, count, to + kKnPlanes);
  }
  template <int Vectors>
  ACCEL_INLINE void values(u64 row, u32 first, float scale, float offset, F16x* v) const {
    const Int4Table table = int4_table(scale, offset, w.zeros);
    const u32* words = w.codes + (row << (w.shift - 3)) + 2 * first;
    for (int i = 0; i < Vectors; ++i) v[i] = int4_weights(words + 2 * i, table);
  }
};
template <class Plane>
static void kn_int4_panels(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = int4_product(args);
  const Int4Weight<Plane> w = int4_weight_of<Plane>(args);
  quant_kn_run<float>(p, args, Panels<Int4Panels<Plane>>{{w}, 1u << w.shift},
                      panel_range(p, 1u << w.shift, chunk, n_chunks), local);
}
