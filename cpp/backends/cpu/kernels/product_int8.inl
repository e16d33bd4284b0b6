// Activations rounded to int8 (CONTRACT E11), order int8_group: the rounded rows, the planes of
// sixteen columns, and the product of a rectangle. A product streams the weight for one or two rows
// (product_int8_stream.inl) and shares panels of unpacked codes among more (product_int8_tile.inl).
// Sums inside a block are exact integers, so all of them give the same bits.

// ---------------------------------------------------------------- the rows
// q: the rounded rows. An int4 weight's word of eight codes meets the even four of its
// activations, then the odd four, so they stand in that order. A block that holds NaN or an
// infinity has the scale NaN.

struct Int8Activations {
  signed char* q;  // [M][stride]
  u64 stride;
  u32 groups;    // of a row
  float* scale;  // [M][groups]
  // [M][groups]. int4: scale * X as f32, X being the sum of the block. int8: -kInt8Bias * X, where
  // the integer sums begin.
  void* sums;
  ACCEL_INLINE const float* offset() const { return (const float*)sums; }
  ACCEL_INLINE const int* start() const { return (const int*)sums; }
};

// An odd number of lines: rows of a power of two would fall into the same cache sets.
static ACCEL_INLINE u64 int8_stride(u32 K) {
  return (u64)(up_to(K, 64) / 64 | 1) * 64;
}
static u64 int8_shared(const void* params) {
  const QuantMatMulParams* p = quant_params(params);
  return (u64)p->M * int8_stride(p->K) + (u64)p->M * (p->K / p->group) * 8;
}
static ACCEL_INLINE Int8Activations int8_activations(const KernelArgs* args) {
  const QuantMatMulParams* p = quant_params(args->params);
  Int8Activations a;
  a.q = (signed char*)args->shared;
  a.stride = int8_stride(p->K);
  a.groups = p->K / p->group;
  a.scale = (float*)(a.q + p->M * a.stride);
  a.sums = a.scale + (u64)p->M * a.groups;
  return a;
}
// Those of the rows from m on.
static ACCEL_INLINE Int8Activations int8_rows_from(const Int8Activations& a, u64 m) {
  return {a.q + m * a.stride, a.stride, a.groups, a.scale + m * a.groups,
          (float*)a.sums + m * a.groups};
}

// The greatest lane and the sum of the lanes; sixteen values between -128 and 127 stored as bytes.
#if ACCEL_ISA_avx512
enum { kInt8Bias = 128 };
static ACCEL_INLINE I16x int8_greater(I16x a, I16x b) {
  return {{_mm512_max_epi32(a.p[0], b.p[0])}};
}
static ACCEL_INLINE int int8_greatest(I16x v) {
  return _mm512_reduce_max_epi32(v.p[0]);
}
static ACCEL_INLINE int int8_sum(I16x v) {
  return _mm512_reduce_add_epi32(v.p[0]);
}
static ACCEL_INLINE __m128i int8_bytes(I16x v) {
  return _mm512_cvtepi32_epi8(v.p[0]);
}
#elif ACCEL_ISA_avx2
enum { kInt8Bias = 0 };
static ACCEL_INLINE I16x int8_greater(I16x a, I16x b) {
  return {{_mm256_max_epi32(a.p[0], b.p[0]), _mm256_max_epi32(a.p[1], b.p[1])}};
}
static ACCEL_INLINE int int8_greatest(I16x v) {
  const VI m = _mm256_max_epi32(v.p[0], v.p[1]);
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
static ACCEL_INLINE int int8_sum(I16x v) {
  const VI m = v_iadd(v.p[0], v.p[1]);
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}
static ACCEL_INLINE __m128i int8_bytes(I16x v) {
  const VI words = _mm256_packs_epi32(v.p[0], v.p[1]), bytes = _mm256_packs_epi16(words, words);
  return _mm_unpacklo_epi32(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
}
#else
enum { kInt8Bias = 0 };
static ACCEL_INLINE I16x int8_greater(I16x a, I16x b) {
  return select(a < b, b, a);
}
static ACCEL_INLINE int int8_greatest(I16x v) {
  int lanes[16], most = 0;
  istore(lanes, v);
  for (int i = 0; i < 16; ++i) most = lanes[i] > most ? lanes[i] : most;
  return most;
}
static ACCEL_INLINE int int8_sum(I16x v) {
  int lanes[16], sum = 0;
  istore(lanes, v);
  for (int i = 0; i < 16; ++i) sum += lanes[i];
  return sum;
}
#endif
#if ACCEL_ISA_avx512 || ACCEL_ISA_avx2
template <bool Int4>
static ACCEL_INLINE void int8_put(signed char* q, I16x v) {
  const __m128i order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m128i bytes = int8_bytes(v);
  _mm_storeu_si128((__m128i*)q, Int4 ? _mm_shuffle_epi8(bytes, order) : bytes);
}
#else
template <bool Int4>
static ACCEL_INLINE void int8_put(signed char* q, I16x v) {
  int lanes[16];
  istore(lanes, v);
  for (int i = 0; i < 16; ++i)
    q[Int4 ? (i & 8) + (i & 1) * 4 + (i & 7) / 2 : i] = (signed char)lanes[i];
}
#endif

// Quotients v / step, rounded half to even and held to 127. The product with 1 / step errs by less
// than 2^-15, so it rounds alike unless it stands within 2^-14 of a half; where the reciprocal
// overflows nothing passes the test. 1.5 * 2^23: the sum's last place is 1.
static ACCEL_INLINE I16x int8_quotients(F16x v, F16x step, F16x inverse) {
  const F16x magic = splat(12582912.0f);
  const F16x guess = v * inverse, shifted = guess + magic, rest = guess - (shifted - magic);
  const I16x size = bits(rest) & isplat(0x7fffffff);
  const M16x sure = size < isplat(0x3efffc00);  // 0.5 - 2^-13
  if (mask_bits(sure) == 0xffff) return bits(shifted) - isplat(0x4b400000);
  const F16x held = min(max(v / step, splat(-127.0f)), splat(127.0f));
  return bits(held + magic) - isplat(0x4b400000);
}

// One block: its bytes, its scale, its sum.
template <bool Int4, class X>
static ACCEL_INLINE int int8_block(const X* x, u32 group, signed char* q, float* scale) {
  I16x most = isplat(0), sum = isplat(0);
  for (u32 k = 0; k < group; k += 16)
    most = int8_greater(most, bits(load(x + k)) & isplat(0x7fffffff));
  // Bits of numbers without a sign are in the order of the numbers; infinities and NaN come last.
  const int peak = int8_greatest(most);
  float step;
  __builtin_memcpy(&step, &peak, 4);
  step = step / 127.0f;
  *scale = peak < 0x7f800000 ? step : __builtin_nanf("");
  if (peak >= 0x7f800000 || step == 0.0f) {
    for (u32 k = 0; k < group; ++k) q[k] = 0;
    return 0;
  }
  const F16x steps = splat(step), inverse = splat(1.0f / step);
  for (u32 k = 0; k < group; k += 16) {
    const I16x whole = int8_quotients(load(x + k), steps, inverse);
    int8_put<Int4>(q + k, whole);
    sum = sum + whole;
  }
  return int8_sum(sum);
}

static u32 int8_chunks(const void* params, u32 threads) {
  const QuantMatMulParams* p = quant_params(params);
  return (u32)at_most(chunks_of((u64)p->M * p->K, kGrain, threads), p->M);
}
template <bool Int4, class X>
static void int8_round(const KernelArgs* args, u32 chunk, u32 n_chunks, void*) {
  const QuantMatMulParams* p = quant_params(args->params);
  const Int8Activations a = int8_activations(args);
  const Range r = range_of(p->M, 1, chunk, n_chunks);
  for (u64 m = r.lo; m < r.hi; ++m) {
    const X* x = (const X*)args->buf[0] + m * p->K;
    for (u32 g = 0; g < a.groups; ++g) {
      const u64 at = (u64)g * p->group, of = m * a.groups + g;
      const int sum = int8_block<Int4>(x + at, p->group, a.q + m * a.stride + at, a.scale + of);
      if (Int4) ((float*)a.sums)[of] = a.scale[of] * (float)sum;
      else ((int*)a.sums)[of] = -kInt8Bias * sum;
    }
  }
}

// ---------------------------------------------------------------- the planes

// Plane entries of sixteen columns, `of_row` apart, as f32 [group][16]; columns past the last one
// there is repeat it.
template <class Plane>
static ACCEL_INLINE void int8_plane_rest(const Plane* from, u32 of_row, u32 g, u32 groups,
                                         u32 columns, float* to) {
  for (; g < groups; ++g)
    for (u32 c = 0; c < 16; ++c)
      to[16 * g + c] = widen_one(from[(u64)least(c, columns - 1) * of_row + g]);
}
#if ACCEL_ISA_avx512
static ACCEL_INLINE V int8_widen(f16, __m256i h) {
  return _mm512_cvtph_ps(h);
}
static ACCEL_INLINE V int8_widen(bf16, __m256i h) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
// Eight bytes of each column hold four groups; those of the last four may be fetched again.
template <class Plane>
static void int8_plane(const Plane* from, u32 of_row, u32 groups, u32 columns, float* to) {
  if (groups < 4) return int8_plane_rest(from, of_row, 0, groups, columns, to);
  const VI lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const VI at = _mm512_mullo_epi32(_mm512_min_epi32(lane, v_iset((int)columns - 1)),
                                   v_iset((int)(of_row * sizeof(Plane))));
  const __m256i low = _mm512_castsi512_si256(at), high = _mm512_extracti64x4_epi64(at, 1);
  // Of sixteen columns the words of one group, then those of the next.
  static const u16 pick[32] = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
                               1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61};
  const VI first = _mm512_loadu_si512(pick);
  for (u32 g = 0; g < groups; g += 4) {
    if (g + 4 > groups) g = groups - 4;
    const VI a = _mm512_i32gather_epi64(low, (const long long*)(from + g), 1);
    const VI b = _mm512_i32gather_epi64(high, (const long long*)(from + g), 1);
    for (int j = 0; j < 4; j += 2) {
      const VI two =
          _mm512_permutex2var_epi16(a, _mm512_add_epi16(first, _mm512_set1_epi16((short)j)), b);
      v_store(to + 16 * (g + j), int8_widen(Plane{}, _mm512_castsi512_si256(two)));
      v_store(to + 16 * (g + j) + 16, int8_widen(Plane{}, _mm512_extracti64x4_epi64(two, 1)));
    }
  }
}
static void int8_plane(const float* from, u32 of_row, u32 groups, u32 columns, float* to) {
  const VI lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const VI at =
      _mm512_mullo_epi32(_mm512_min_epi32(lane, v_iset((int)columns - 1)), v_iset((int)of_row));
  for (u32 g = 0; g < groups; ++g) v_store(to + 16 * g, _mm512_i32gather_ps(at, from + g, 4));
}
#else
template <class Plane>
static void int8_plane(const Plane* from, u32 of_row, u32 groups, u32 columns, float* to) {
  int8_plane_rest(from, of_row, 0, groups, columns, to);
}
#endif

// Scales and offsets of a weight's columns, [group][16] each.
struct Int8Planes {
  float *scales, *offsets;
};
// Offsets from zero points: -z * s, but z where s is 0.
static ACCEL_INLINE void int8_from_zeros(const Int8Planes& to, u32 groups) {
  for (u32 i = 0; i < 16 * groups; i += 16) {
    const F16x s = load(to.scales + i), z = load(to.offsets + i);
    const F16x negative = from_bits(bits(z) ^ isplat((int)0x80000000u));
    store(to.offsets + i, select(s == splat(0.0f), z, negative * s));
  }
}
