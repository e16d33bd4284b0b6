// Activations rounded to int8 (CONTRACT E11), order int8_group: the rounded rows and the planes of
// sixteen columns. A product streams the weight for few rows (product_int8_stream.inl) and
// shares panels of unpacked codes among more (product_int8_tile.inl). Sums
// inside a block are exact integers, so all of them give the same bits.

// ---------------------------------------------------------------- the rows
// q: the rounded rows. An int4 weight's word of eight codes meets the even four of its
// activations, then the odd four, so they stand in that order. A block that holds NaN or an
// infinity has the scale NaN.

struct Int8Activations {
  signed char* q;  // [M][stride]
  u64 stride;
  u32 groups;    // of a row
  u64 room;      // rows that scale and sums hold
  float* scale;  // [groups][room]
  // [groups][room]. int4: scale * X as f32, X being the sum of the block. int8: -kInt8Bias * X,
  // where the integer sums begin.
  void* sums;
  ACCEL_INLINE const float* offset() const { return (const float*)sums; }
  ACCEL_INLINE const int* start() const { return (const int*)sums; }
};

// An odd number of lines: rows and groups a power of two apart would fall into the same cache sets.
static ACCEL_INLINE u64 int8_odd_lines(u64 bytes) {
  return (round_up(bytes, 64) / 64 | 1) * 64;
}
static ACCEL_INLINE u64 int8_stride(u32 K) {
  return int8_odd_lines(K);
}
static ACCEL_INLINE u64 int8_room(u32 M) {
  return M < 16 ? M : int8_odd_lines((u64)M * 4) / 4;
}
static u64 int8_shared(const void* params) {
  const ProductParams* p = quant_params(params);
  return int8_room(p->M) * (int8_stride(p->K) + (u64)(p->K / p->group) * 8);
}
static ACCEL_INLINE Int8Activations int8_activations(const KernelArgs* args) {
  const ProductParams* p = quant_params(args->params);
  Int8Activations a;
  a.q = (signed char*)args->shared;
  a.stride = int8_stride(p->K);
  a.groups = p->K / p->group;
  a.room = int8_room(p->M);
  a.scale = (float*)(a.q + a.room * a.stride);
  a.sums = a.scale + a.room * a.groups;
  return a;
}
// Those of the rows from m and of the groups from g on; the bytes of a group are `group`.
static ACCEL_INLINE Int8Activations int8_from(const Int8Activations& a, u64 m, u64 g, u32 group) {
  const u64 at = g * a.room + m;
  return {a.q + m * a.stride + g * group,
          a.stride,
          a.groups,
          a.room,
          a.scale + at,
          (float*)a.sums + at};
}

#if ACCEL_ISA_avx512
enum { kInt8Bias = 128 };  // added to bytes of weights
#else
enum { kInt8Bias = 0 };
#endif

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

template <class Plane>
static ACCEL_INLINE void int8_fetch(const Plane* from, u32 count) {
  for (u32 b = 0; b < count * sizeof(Plane); b += 64) __builtin_prefetch((const char*)from + b);
}

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
