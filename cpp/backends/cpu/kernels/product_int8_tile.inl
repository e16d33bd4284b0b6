// Many rows rounded to int8: the codes of sixteen columns by a slice of K are unpacked to bytes
// once, as [word][column], and meet every row of the chunk. A register holds one word of each
// column, and one broadcast word of activations meets them all; a block ends with its integer sums
// standing in the lanes of their columns.

enum {
#if ACCEL_ISA_avx512
  kInt8Rows = 6,  // 12 sums, 12 results, 2 weights, 1 activation
  kInt8Panels = 2,
#elif ACCEL_ISA_avx2
  kInt8Rows = 5,  // 5 sums, 5 results, 1 weight, half of the columns
  kInt8Panels = 1,
#else
  kInt8Rows = 4,
  kInt8Panels = 1,
#endif
  kInt8Depth = 768,  // of K in one panel, a multiple of every group: two panels and a row block
                     // share L1
  kInt8PanelBytes = kInt8Depth * 16,
  kInt8PlaneFloats = 16 * (kInt8Depth / 32),
  kInt8TileBytes = kInt8Panels * (kInt8PanelBytes + 2 * kInt8PlaneFloats * 4),
};

// ---------------------------------------------------------------- panels

// The words of one vector of sixteen rows, transposed: a[i] holds word i of each row.
#if ACCEL_ISA_avx512
static ACCEL_INLINE void int8_transpose(const char* rows, u64 row_bytes, I16x* to) {
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
    to[j].p[0] = _mm512_shuffle_i32x4(low, low2, 0x88);
    to[j + 8].p[0] = _mm512_shuffle_i32x4(low, low2, 0xdd);
    to[j + 4].p[0] = _mm512_shuffle_i32x4(high, high2, 0x88);
    to[j + 12].p[0] = _mm512_shuffle_i32x4(high, high2, 0xdd);
  }
}
#elif ACCEL_ISA_avx2
static ACCEL_INLINE void int8_transpose(const char* rows, u64 row_bytes, I16x* to) {
  for (int half = 0; half < 2; ++half) {
    VI a[8], b[8];
    for (int i = 0; i < 8; ++i) a[i] = v_iload((const int*)(rows + (8 * half + i) * row_bytes));
    for (int i = 0; i < 8; i += 2) {
      b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
      b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4)
      for (int j = 0; j < 2; ++j) {
        a[i + 2 * j] = _mm256_unpacklo_epi64(b[i + j], b[i + j + 2]);
        a[i + 2 * j + 1] = _mm256_unpackhi_epi64(b[i + j], b[i + j + 2]);
      }
    for (int j = 0; j < 4; ++j) {
      to[j].p[half] = _mm256_permute2x128_si256(a[j], a[j + 4], 0x20);
      to[j + 4].p[half] = _mm256_permute2x128_si256(a[j], a[j + 4], 0x31);
    }
  }
}
#endif

// One word of sixteen columns: the even codes of an int4 word, then the odd ones; int8 plus
// kInt8Bias.
template <bool Int4>
static ACCEL_INLINE void int8_put_words(char* to, I16x words) {
  int* at = (int*)to;
  if (Int4) {
    istore(at, words & isplat(0x0f0f0f0f));
    istore(at + 16, shr<4>(words) & isplat(0x0f0f0f0f));
  } else {
    istore(at, kInt8Bias != 0 ? words ^ isplat((int)0x80808080u) : words);
  }
}
// `words` words of the rows of up to sixteen columns; columns that do not exist are zero codes.
template <bool Int4>
static void int8_panel(const char* rows, u64 row_bytes, u32 columns, u32 words, char* to) {
  const u32 bytes = Int4 ? 128 : 64;  // of one word of all columns, unpacked
  u32 i = 0;
#if ACCEL_ISA_avx512 || ACCEL_ISA_avx2
  // The last words once more where they are no whole vector.
  if (columns == 16 && words >= kLanes)
    while (i < words) {
      i = least(i, words - kLanes);
      I16x v[kLanes];
      int8_transpose(rows + 4 * (u64)i, row_bytes, v);
      for (u32 j = 0; j < kLanes; ++j) int8_put_words<Int4>(to + (u64)(i + j) * bytes, v[j]);
      i += kLanes;
    }
#endif
  for (; i < words; ++i) {
    int word[16] = {};
    for (u32 c = 0; c < columns; ++c)
      __builtin_memcpy(word + c, rows + c * row_bytes + 4 * (u64)i, 4);
    int8_put_words<Int4>(to + (u64)i * bytes, iload(word));
  }
}

// ---------------------------------------------------------------- a run of 32 codes

// sums[r][c] takes the products of eight words of vector c of the columns, `apart` bytes from one
// vector to the next, with the 32 activations of row r. Weights of int8 are bytes plus kInt8Bias,
// or, where there is no bias, signed.
#if ACCEL_ISA_avx512
template <int R, int C, bool Int4>
static ACCEL_INLINE void int8_run(VI (&sums)[R][C], const char* w, u64 apart, const signed char* q,
                                  u64 stride) {
  ACCEL_UNROLL for (int i = 0; i < 8; ++i) {
    VI bytes[C];
    ACCEL_UNROLL for (int c = 0; c < C; ++c) bytes[c] = _mm512_loadu_si512(w + i * 64 + c * apart);
    ACCEL_UNROLL for (int r = 0; r < R; ++r) {
      int x;
      __builtin_memcpy(&x, q + r * stride + 4 * i, 4);
      ACCEL_UNROLL for (int c = 0; c < C; ++c) {
        sums[r][c] = _mm512_dpbusd_epi32(sums[r][c], bytes[c], v_iset(x));
      }
    }
  }
}
#elif ACCEL_ISA_avx2
// Two products of codes fit in 16 bits, and of int4 so do the sixteen that a lane meets in a run:
// 16 * 15 * 127. Two of int8 are at most 2 * 128 * 127.
template <int R, int C, bool Int4>
static ACCEL_INLINE void int8_run(VI (&sums)[R][C], const char* w, u64, const signed char* q,
                                  u64 stride) {
  const VI ones = _mm256_set1_epi16(1);
  VI pairs[R];
  ACCEL_UNROLL for (int r = 0; r < R; ++r) pairs[r] = v_iset(0);
  ACCEL_UNROLL for (int i = 0; i < 8; ++i) {
    const VI bytes = v_iload((const int*)(w + i * 64));
    const VI size = Int4 ? bytes : _mm256_abs_epi8(bytes);
    ACCEL_UNROLL for (int r = 0; r < R; ++r) {
      int x;
      __builtin_memcpy(&x, q + r * stride + 4 * i, 4);
      const VI xs = Int4 ? v_iset(x) : _mm256_sign_epi8(v_iset(x), bytes);
      const VI two = _mm256_maddubs_epi16(size, xs);
      if (Int4) pairs[r] = _mm256_add_epi16(pairs[r], two);
      else sums[r][0] = v_iadd(sums[r][0], _mm256_madd_epi16(two, ones));
    }
  }
  if (Int4)
    ACCEL_UNROLL for (int r = 0; r < R; ++r) sums[r][0] =
        v_iadd(sums[r][0], _mm256_madd_epi16(pairs[r], ones));
}
#else
template <int R, int C, bool Int4>
static ACCEL_INLINE void int8_run(VI (&sums)[R][C], const char* w, u64, const signed char* q,
                                  u64 stride) {
  for (int i = 0; i < 8; ++i) {
    const VI bytes = v_iload((const int*)(w + i * 64));
    for (int j = 0; j < 4; ++j) {
      const VI byte = (VI)((VU)bytes << (24 - 8 * j));
      const VI wide = Int4 ? (VI)((VU)byte >> 24) : byte >> 24;
      for (int r = 0; r < R; ++r)
        sums[r][0] = v_iadd(sums[r][0], wide * v_iset(q[r * stride + 4 * i + j]));
    }
  }
}
#endif

// ---------------------------------------------------------------- rows by columns

// A slice of K: panels of sixteen columns, and the rows from one on.
struct Int8Slice {
  char* bytes;        // kInt8PanelBytes a panel
  Int8Planes planes;  // kInt8PlaneFloats a panel
  Int8Activations a;  // from the slice's first block of the first row
  u32 groups, runs;   // of the slice; runs of 32 codes of a group
  u32 columns;
  bool first;
  float* out;
  u64 width;          // of out
  const char* ahead;  // the codes that come next, of which each group of a fetching block of rows
  u32 fetched;        // fetches so many bytes, whole lines; 0: none
};

static ACCEL_INLINE V int8_load_out(const Int8Slice& s, int row, u32 column) {
  const float* out = s.out + row * s.width + column;
  if (column + kLanes <= s.columns) return v_load(out);
  return column < s.columns ? v_loadn(out, (int)(s.columns - column)) : v_set(0.0f);
}
static ACCEL_INLINE void int8_store_out(const Int8Slice& s, int row, u32 column, V v) {
  float* out = s.out + row * s.width + column;
  if (column + kLanes <= s.columns) v_store(out, v);
  else if (column < s.columns) v_storen(out, v, (int)(s.columns - column));
}

// R rows by C vectors of columns, the first vector at `column`. Vectors of one call lie a panel
// apart.
template <int R, int C, bool Int4>
static void int8_tile(const Int8Slice& s, u32 column) {
  V acc[R][C];
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int c = 0; c < C; ++c) acc[r][c] =
      s.first ? v_set(0.0f) : int8_load_out(s, r, column + c * 16);
  const char* w = s.bytes + (u64)(column / 16) * kInt8PanelBytes + column % 16 * 4;
  const u64 plane = (u64)(column / 16) * kInt8PlaneFloats + column % 16;
  const float *scales = s.planes.scales + plane, *offsets = s.planes.offsets + plane;
  const signed char* q = s.a.q;
  const float *step = s.a.scale, *sum = s.a.offset();
  const int* start = s.a.start();
  for (u32 g = 0; g < s.groups; ++g, scales += 16, offsets += 16) {
    VI sums[R][C];
    ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int c = 0; c < C; ++c) sums[r][c] =
        v_iset(Int4 || kInt8Bias == 0 ? 0 : start[r]);
    for (u32 run = 0; run < s.runs; ++run, w += 8 * 64, q += 32)
      int8_run<R, C, Int4>(sums, w, kInt8PanelBytes, q, s.a.stride);
    for (u32 b = 0; b < s.fetched; b += 64) __builtin_prefetch(s.ahead + g * s.fetched + b, 0, 2);
    V ws[C], wb[C];
    ACCEL_UNROLL for (int c = 0; c < C; ++c) ws[c] = v_load(scales + c * kInt8PlaneFloats);
    ACCEL_UNROLL for (int c = 0; c < C; ++c) wb[c] = v_load(offsets + c * kInt8PlaneFloats);
    ACCEL_UNROLL for (int r = 0; r < R; ++r) {
      const V steps = v_set(step[r]), sum_of = v_set(sum[r]);
      ACCEL_UNROLL for (int c = 0; c < C; ++c) {
        acc[r][c] = v_fma(v_mul(ws[c], steps), v_from_int(sums[r][c]), acc[r][c]);
        if (Int4) acc[r][c] = v_fma(wb[c], sum_of, acc[r][c]);
      }
    }
    step += s.a.room, sum += s.a.room, start += s.a.room;
  }
  ACCEL_UNROLL for (int r = 0; r < R; ++r) ACCEL_UNROLL for (int c = 0; c < C; ++c)
      int8_store_out(s, r, column + c * 16, acc[r][c]);
}

template <int C, bool Int4>
static void int8_tile_of(u32 rows, const Int8Slice& s, u32 column) {
  switch (rows) {
#if ACCEL_ISA_avx512
    case 6:
      return int8_tile<6, C, Int4>(s, column);
#endif
#if ACCEL_ISA_avx512 || ACCEL_ISA_avx2
    case 5:
      return int8_tile<5, C, Int4>(s, column);
#endif
    case 4:
      return int8_tile<4, C, Int4>(s, column);
    case 3:
      return int8_tile<3, C, Int4>(s, column);
    case 2:
      return int8_tile<2, C, Int4>(s, column);
    default:
      return int8_tile<1, C, Int4>(s, column);
  }
}

// Blocks of rows that fetch the codes of the next columns: so many that memory is read all the time
// where rows are few.
static ACCEL_INLINE u32 int8_fetching(u32 rows) {
  return least(up_to(rows, kInt8Rows) / kInt8Rows, 3);
}
// All rows of a slice, in blocks of nearly one height.
template <bool Int4>
static void int8_slice(Int8Slice s, u32 rows) {
  const Int8Activations a = s.a;
  float* const out = s.out;
  const u32 blocks = up_to(rows, kInt8Rows) / kInt8Rows;
  for (u32 b = 0; b < blocks; ++b, s.ahead += s.groups * s.fetched) {
    if (b == int8_fetching(rows)) s.fetched = 0;
    const u32 m = (u32)part_of(rows, b, blocks), height = (u32)part_of(rows, b + 1, blocks) - m;
    s.a = int8_from(a, m, 0, 0);
    s.out = out + m * s.width;
#if ACCEL_ISA_avx512
    if (s.columns > 16) int8_tile_of<2, Int4>(height, s, 0);
    else int8_tile_of<1, Int4>(height, s, 0);
#else
    for (u32 c = 0; c < s.columns; c += kLanes) int8_tile_of<1, Int4>(height, s, c);
#endif
  }
}
