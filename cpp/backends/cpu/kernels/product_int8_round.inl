// Rows of activations rounded to int8, block by block.

// The greatest lane and the sum of the lanes; sixteen values between -128 and 127 stored as bytes.
#if ACCEL_ISA_avx512
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
// than 2^-15, so it rounds alike unless it stands that close to a half; where the reciprocal
// overflows nothing passes the test. 1.5 * 2^23: the sum's last place is 1.
enum { kInt8Magic = 0x4b400000, kInt8Sure = 0x3efffc00 };  // 1.5 * 2^23; 0.5 - 2^-15
static ACCEL_INLINE I16x int8_quotients(F16x v, F16x step, F16x inverse) {
  const F16x magic = from_bits(isplat(kInt8Magic));
  const F16x guess = v * inverse, shifted = guess + magic, rest = guess - (shifted - magic);
  const M16x sure = (bits(rest) & isplat(0x7fffffff)) < isplat(kInt8Sure);
  if (mask_bits(sure) == 0xffff) return bits(shifted) - isplat(kInt8Magic);
  const F16x held = min(max(v / step, splat(-127.0f)), splat(127.0f));
  return bits(held + magic) - isplat(kInt8Magic);
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

#if ACCEL_ISA_avx512
// ---------------------------------------------------------------- sixteen blocks

struct Int8Max {
  ACCEL_INLINE VI operator()(VI a, VI b) const { return _mm512_max_epi32(a, b); }
};
struct Int8Add {
  ACCEL_INLINE VI operator()(VI a, VI b) const { return _mm512_add_epi32(a, b); }
};
template <int Low, int High, class Op>
static ACCEL_INLINE VI int8_quarters(VI a, VI b, Op op) {
  return op(_mm512_shuffle_i32x4(a, b, Low), _mm512_shuffle_i32x4(a, b, High));
}
template <int Low, int High, class Op>
static ACCEL_INLINE VI int8_lanes(VI a, VI b, Op op) {
  return op(v_bits(_mm512_shuffle_ps(v_float(a), v_float(b), Low)),
            v_bits(_mm512_shuffle_ps(v_float(a), v_float(b), High)));
}
// Lane j is all lanes of v[j].
template <class Op>
static ACCEL_INLINE VI int8_tree(const VI* v, Op op) {
  VI four[4];
  for (int j = 0; j < 4; ++j)
    four[j] = int8_quarters<0x88, 0xdd>(int8_quarters<0x44, 0xee>(v[j], v[j + 8], op),
                                        int8_quarters<0x44, 0xee>(v[j + 4], v[j + 12], op), op);
  const VI all = int8_lanes<0x88, 0xdd>(int8_lanes<0x44, 0xee>(four[0], four[1], op),
                                        int8_lanes<0x44, 0xee>(four[2], four[3], op), op);
  return _mm512_shuffle_i32x4(all, all, 0xd8);
}

// Rounds 32 values by their reciprocal and adds kInt8Magic + each to the sum; false where one is
// not sure.
template <bool Int4, class X>
static ACCEL_INLINE bool int8_put32(const X* x, V inverse, signed char* q, VI* sum) {
  const V magic = v_float(v_iset(kInt8Magic));
  const VI size = v_iset(0x7fffffff);
  const V a = v_mul(v_load(x), inverse), b = v_mul(v_load(x + 16), inverse);
  const V ra = v_add(a, magic), rb = v_add(b, magic);
  const VI resta = v_bits(v_sub(a, v_sub(ra, magic))) & size;
  const VI restb = v_bits(v_sub(b, v_sub(rb, magic))) & size;
  // The low bytes of the sums are the results: of a in the even bytes' places, of b in the odd
  // ones.
  const VI both = _mm512_mask_blend_epi8(0x2222222222222222ull, v_bits(ra), v_shl<8>(v_bits(rb)));
  static const u8 plain[32] = {0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60,
                               1, 5, 9, 13, 17, 21, 25, 29, 33, 37, 41, 45, 49, 53, 57, 61};
  static const u8 even_odd[32] = {0, 8, 16, 24, 4, 12, 20, 28, 32, 40, 48, 56, 36, 44, 52, 60,
                                  1, 9, 17, 25, 5, 13, 21, 29, 33, 41, 49, 57, 37, 45, 53, 61};
  const __m256i order = _mm256_loadu_si256((const __m256i*)(Int4 ? even_odd : plain));
  const VI bytes = _mm512_permutexvar_epi8(_mm512_castsi256_si512(order), both);
  _mm256_storeu_si256((__m256i*)q, _mm512_castsi512_si256(bytes));
  *sum = v_iadd(*sum, v_iadd(v_bits(ra), v_bits(rb)));
  return _mm512_cmpge_epi32_mask(_mm512_max_epi32(resta, restb), v_iset(kInt8Sure)) == 0;
}

// Sixteen blocks that lie one behind the other in x, with their scales and sums; q says where each
// goes.
template <bool Int4, class X>
static ACCEL_INLINE void int8_sixteen(const X* x, u32 group, signed char* const* q, float* scale,
                                      int* sum) {
  VI v[16];
  for (u32 i = 0; i < 16; ++i) {
    v[i] = v_iset(0);
    for (u32 k = 0; k < group; k += 16)
      v[i] = _mm512_max_epi32(v[i], v_bits(v_load(x + i * group + k)) & v_iset(0x7fffffff));
  }
  const VI peak = int8_tree(v, Int8Max());
  const V step = v_div(v_float(peak), v_set(127.0f));
  const VM finite = v_ilt(peak, v_iset(0x7f800000));
  float inverse[16];
  v_store(inverse, v_div(v_set(1.0f), step));
  v_store(scale, v_select(finite, step, v_set(__builtin_nanf(""))));
  // Of a block without a number or without a step nothing passes: its reciprocal is 0 or infinite.
  u32 unsure = 0;
  for (u32 i = 0; i < 16; ++i) {
    v[i] = v_iset(0);
    bool sure = true;
    for (u32 k = 0; k < group; k += 16) __builtin_prefetch(x + (i + 16) * group + k);
    for (u32 k = 0; k < group; k += 32)
      sure &= int8_put32<Int4>(x + i * group + k, v_set(inverse[i]), q[i] + k, v + i);
    unsure |= (u32)!sure << i;
  }
  v_istore(sum, v_isub(int8_tree(v, Int8Add()), v_iset((int)(group * (u32)kInt8Magic))));
  for (; unsure; unsure &= unsure - 1) {
    const u32 i = (u32)__builtin_ctz(unsure);
    sum[i] = int8_block<Int4>(x + i * group, group, q[i], scale + i);
  }
}
#endif

// ---------------------------------------------------------------- the phase

enum { kInt8Grain = 4096 };  // elements, which take some 2 us
static u32 int8_chunks(const void* params, u32 threads) {
  const ProductParams* p = quant_params(params);
  return (u32)at_most(chunks_of((u64)p->M * p->K, kInt8Grain, threads), p->M);
}
// What a block leaves beside its bytes.
template <bool Int4>
static ACCEL_INLINE void int8_put_block(const Int8Activations& a, u64 at, float scale, int sum) {
  a.scale[at] = scale;
  if (Int4) ((float*)a.sums)[at] = scale * (float)sum;
  else ((int*)a.sums)[at] = -kInt8Bias * sum;
}
template <bool Int4, class X>
static void int8_round(const KernelArgs* args, u32 chunk, u32 n_chunks, void*) {
  const ProductParams* p = quant_params(args->params);
  const Int8Activations a = int8_activations(args);
  const X* x = (const X*)args->buf[0];
  const Range r = range_of(p->M, 1, chunk, n_chunks);
  u64 m = r.lo, block = r.lo * a.groups;
  const u64 end = r.hi * a.groups;
  u32 g = 0;
#if ACCEL_ISA_avx512
  for (; block + 16 <= end; block += 16) {
    signed char* q[16];
    float scale[16];
    int sum[16];
    u64 at[16];
    for (u32 i = 0; i < 16; ++i) {
      q[i] = a.q + m * a.stride + (u64)g * p->group;
      at[i] = g * a.room + m;
      if (++g == a.groups) g = 0, ++m;
    }
    // A group known to the compiler leaves no loops within.
    if (p->group == 32) int8_sixteen<Int4>(x + block * 32, 32, q, scale, sum);
    else int8_sixteen<Int4>(x + block * p->group, p->group, q, scale, sum);
    for (u32 i = 0; i < 16; ++i) int8_put_block<Int4>(a, at[i], scale[i], sum[i]);
  }
#endif
  for (; block < end; ++block) {
    float scale;
    const int sum = int8_block<Int4>(x + block * p->group, p->group,
                                     a.q + m * a.stride + (u64)g * p->group, &scale);
    int8_put_block<Int4>(a, g * a.room + m, scale, sum);
    if (++g == a.groups) g = 0, ++m;
  }
}
