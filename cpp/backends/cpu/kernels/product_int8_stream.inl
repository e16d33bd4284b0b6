// Few rows rounded to int8, one by one: the weight is read as stored, a vector of each of sixteen
// columns at a time. The integer sums of a run of 32 codes lie in neighbouring lanes; those of all
// columns are added up and transposed together, so that lane n ends with the sum of column n.

enum {
#if ACCEL_ISA_avx512
  kInt8StreamRows = 3,  // more rows share panels
#elif ACCEL_ISA_avx2
  kInt8StreamRows = 4,
#else
  kInt8StreamRows = 0,
#endif
  kInt8StreamGroups = 64,  // groups whose planes are widened at once
  kInt8Vector = sizeof(VI),
  kInt8StreamBytes = 2 * kInt8StreamGroups * 16 * 4,
};

// The activations that one vector of a column meets: of int4 those of the even codes, then those of
// the odd ones.
struct Int8Row {
  VI even, odd;
};

#if ACCEL_ISA_avx512
static ACCEL_INLINE VI int8_part(const void* p, int bytes) {
  return bytes >= 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi32(first_lanes(bytes / 4), p);
}
static ACCEL_INLINE Int8Row int8_row_of_int4(const signed char* q, int bytes) {
  const VI even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const VI a = int8_part(q, 2 * bytes);
  const VI b = 2 * bytes > 64 ? int8_part(q + 64, 2 * bytes - 64) : v_iset(0);
  return {_mm512_permutex2var_epi32(a, even, b),
          _mm512_permutex2var_epi32(a, _mm512_add_epi32(even, v_iset(1)), b)};
}
// Four products a lane, of int4 eight.
template <bool Int4>
static ACCEL_INLINE VI int8_products(VI w, const Int8Row& x) {
  const VI low = v_iset(0x0f0f0f0f), zero = v_iset(0);
  if (!Int4)
    return _mm512_dpbusd_epi32(zero, _mm512_xor_si512(w, v_iset((int)0x80808080u)), x.even);
  const VI sums = _mm512_dpbusd_epi32(zero, w & low, x.even);
  // A bit matrix that moves the upper four bits of each byte down: shift and mask in one.
  const VI down = _mm512_set1_epi64(0x1020408000000000ll);
  return _mm512_dpbusd_epi32(sums, _mm512_gf2p8affine_epi64_epi8(w, down, 0), x.odd);
}
static ACCEL_INLINE VI int8_pack(VI a, VI b) {
  return _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
}
static ACCEL_INLINE VI int8_pairs(VI a, VI b) {
  return v_iadd(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
static ACCEL_INLINE VI int8_quads(VI a, VI b) {
  return v_iadd(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
// v[j], a quarter: columns 4 j .. 4 j + 3. A run is a quarter of int4, half of the vector of int8.
template <bool Int4>
static ACCEL_INLINE void int8_runs(const VI* v, I16x* sums) {
  const VI ab = _mm512_shuffle_i32x4(v[0], v[1], 0x88), cd = _mm512_shuffle_i32x4(v[2], v[3], 0x88);
  const VI ef = _mm512_shuffle_i32x4(v[0], v[1], 0xdd), gh = _mm512_shuffle_i32x4(v[2], v[3], 0xdd);
  if (Int4) {
    sums[0].p[0] = _mm512_shuffle_i32x4(ab, cd, 0x88);
    sums[1].p[0] = _mm512_shuffle_i32x4(ef, gh, 0x88);
    sums[2].p[0] = _mm512_shuffle_i32x4(ab, cd, 0xdd);
    sums[3].p[0] = _mm512_shuffle_i32x4(ef, gh, 0xdd);
  } else {
    const VI low = v_iadd(ab, ef), high = v_iadd(cd, gh);
    sums[0].p[0] = _mm512_shuffle_i32x4(low, high, 0x88);
    sums[1].p[0] = _mm512_shuffle_i32x4(low, high, 0xdd);
  }
}
#elif ACCEL_ISA_avx2
static ACCEL_INLINE VI int8_part(const void* p, int bytes) {
  return bytes >= 32 ? v_iload((const int*)p)
                     : _mm256_maskload_epi32((const int*)p, first_lanes(bytes / 4));
}
static ACCEL_INLINE Int8Row int8_row_of_int4(const signed char* q, int bytes) {
  const V a = v_float(int8_part(q, 2 * bytes));
  const V b = v_float(2 * bytes > 32 ? int8_part(q + 32, 2 * bytes - 32) : v_iset(0));
  return {_mm256_permute4x64_epi64(v_bits(_mm256_shuffle_ps(a, b, 0x88)), 0xd8),
          _mm256_permute4x64_epi64(v_bits(_mm256_shuffle_ps(a, b, 0xdd)), 0xd8)};
}
template <bool Int4>
static ACCEL_INLINE VI int8_products(VI w, const Int8Row& x) {
  const VI low = v_iset(0x0f0f0f0f), ones = _mm256_set1_epi16(1);
  if (!Int4)
    return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x.even, w)),
                             ones);
  const VI even = _mm256_maddubs_epi16(w & low, x.even);
  const VI odd = _mm256_maddubs_epi16(_mm256_srli_epi16(w, 4) & low, x.odd);
  return _mm256_madd_epi16(_mm256_add_epi16(even, odd), ones);
}
static ACCEL_INLINE VI int8_pack(VI a, VI b) {
  return _mm256_madd_epi16(_mm256_packs_epi32(a, b), _mm256_set1_epi16(1));
}
static ACCEL_INLINE VI int8_pairs(VI a, VI b) {
  return v_iadd(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
}
static ACCEL_INLINE VI int8_quads(VI a, VI b) {
  return v_iadd(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
}
// v[j], a half: columns 4 j .. 4 j + 3. A run is a half of int4, the vector of int8.
template <bool Int4>
static ACCEL_INLINE void int8_runs(const VI* v, I16x* sums) {
  for (int i = 0; i < 2; ++i) {
    const VI a = _mm256_permute2x128_si256(v[2 * i], v[2 * i + 1], 0x20);
    const VI b = _mm256_permute2x128_si256(v[2 * i], v[2 * i + 1], 0x31);
    if (Int4) sums[0].p[i] = a, sums[1].p[i] = b;
    else sums[0].p[i] = v_iadd(a, b);
  }
}
#endif

#if ACCEL_ISA_avx512 || ACCEL_ISA_avx2
// The sums of the runs of a vector of sixteen columns, of which `bytes` bytes exist.
template <bool Int4>
static ACCEL_INLINE void int8_sums(const char* const* w, u64 at, int bytes, const Int8Row& x,
                                   const char* ahead, I16x* sums) {
  VI four[4];
  ACCEL_UNROLL for (int j = 0; j < 4; ++j) {
    VI v[4];
    ACCEL_UNROLL for (int i = 0; i < 4; ++i) {
      v[i] = int8_products<Int4>(int8_part(w[4 * j + i] + at, bytes), x);
      if (kInt8Vector == 64 || i % 2) __builtin_prefetch(ahead + (4 * j + i) * kInt8Vector, 0, 2);
    }
    // A lane of int4 holds 8 products, then 16 and 32: the first two fit in 16 bits.
    four[j] = Int4 ? int8_pack(int8_pack(v[0], v[1]), int8_pack(v[2], v[3]))
                   : int8_quads(int8_pairs(v[0], v[1]), int8_pairs(v[2], v[3]));
  }
  int8_runs<Int4>(four, sums);
}

// Sixteen columns. What is fetched meanwhile are those behind them, in the order of their
// addresses.
struct Int8Columns16 {
  const char* w[16];
  Int8Planes planes;
  u64 ahead;        // from what is read to what is fetched
  u64 next_groups;  // the first group to fetch
};
// `groups` groups of Per runs, from byte `at` of the columns on.
template <bool Int4, int Per, class Weight>
static ACCEL_INLINE F16x int8_dot(const Weight& weight, const Int8Columns16& s, u64 at, u32 groups,
                                  Int8Activations x, F16x acc) {
  enum { kRuns = kInt8Vector / (Int4 ? 16 : 32), kStep = kRuns > Per ? kRuns : Per };
  const char* ahead = s.w[0] + s.ahead + 16 * at;
  for (u32 g = 0; g < groups; g += kStep / Per) {
    const int left = (int)(groups - g) * Per;  // at least kStep, or one vector in part
    I16x sums[kStep];
    weight.fetch(s.next_groups + 16 * g, 16 * kStep / Per);
    ACCEL_UNROLL for (int i = 0; i < kStep; i += kRuns) {
      const int bytes = left >= kStep ? (int)kInt8Vector : left * (Int4 ? 16 : 32);
      const Int8Row row =
          Int4 ? int8_row_of_int4(x.q, bytes) : Int8Row{int8_part(x.q, bytes), v_iset(0)};
      // The branch keeps the common case free of masks.
      if (left >= kStep) int8_sums<Int4>(s.w, at, kInt8Vector, row, ahead, sums + i);
      else int8_sums<Int4>(s.w, at, bytes, row, ahead, sums + i);
      at += kInt8Vector, ahead += 16 * kInt8Vector, x.q += 32 * kRuns;
    }
    ACCEL_UNROLL for (int i = 0; i < kStep / Per; ++i) {
      if (i * Per >= left) break;
      I16x total = sums[i * Per];
      ACCEL_UNROLL for (int j = 1; j < Per; ++j) total = total + sums[i * Per + j];
      if (!Int4) total = total + isplat(x.start()[(g + i) * x.room]);
      const F16x step = load(s.planes.scales + 16 * (g + i)) * splat(x.scale[(g + i) * x.room]);
      acc = fma(step, to_float(total), acc);
      if (!Int4) continue;
      const F16x offset = load(s.planes.offsets + 16 * (g + i));
      acc = fma(offset, splat(x.offset()[(g + i) * x.room]), acc);
    }
  }
  return acc;
}

// The rows of a rectangle, sixteen columns at a time.
template <bool Int4, int Per, class Weight>
static void int8_stream(const Product& p, const Weight& weight, const Int8Activations& a,
                        const Rect& r, void* local) {
  const u32 group = 32 * Per, bytes = group / (Int4 ? 2 : 1);
  Int8Columns16 s;
  s.planes.scales = (float*)local;
  s.planes.offsets = s.planes.scales + 16 * kInt8StreamGroups;
  s.ahead = bytes_ahead(16 * weight.row_bytes, kNkAhead);
  for (u32 n = r.n0; n < r.n1; n += 16) {
    const u32 columns = least(16, r.n1 - n);
    for (u32 c = 0; c < 16; ++c)
      s.w[c] = weight.bytes + (u64)(n + least(c, columns - 1)) * weight.row_bytes;
    F16x acc[kInt8StreamRows];
    for (F16x& sum : acc) sum = splat(0.0f);
    for (u32 g = 0; g < a.groups; g += kInt8StreamGroups) {
      const u32 groups = least(kInt8StreamGroups, a.groups - g);
      s.next_groups = (u64)(n + 16) * a.groups + 16 * g;
      weight.planes((u64)n * a.groups + g, a.groups, groups, columns, s.planes);
      for (u32 m = r.m0; m < r.m1; ++m) {
        acc[m - r.m0] = int8_dot<Int4, Per>(weight, s, (u64)g * bytes, groups,
                                            int8_from(a, m, g, group), acc[m - r.m0]);
      }
    }
    for (u32 m = r.m0; m < r.m1; ++m) {
      float* out = p.out + (u64)m * p.N + n;
      if (columns == 16) store(out, acc[m - r.m0]);
      else store_n(out, acc[m - r.m0], (int)columns);
    }
  }
}
#endif
