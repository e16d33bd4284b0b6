// The elementwise operators and the functions of shared/math, element by element. An operand that
// is one run repeated is read in place, at i mod its block.

static ACCEL_INLINE F16x f_add(F16x x, F16x y) {
  return x + y;
}
static ACCEL_INLINE F16x f_mul(F16x x, F16x y) {
  return x * y;
}
static ACCEL_INLINE F16x f_sub(F16x x, F16x y) {
  return x - y;
}
static ACCEL_INLINE F16x f_same(F16x x, F16x) {
  return x;
}
static ACCEL_INLINE F16x f_silu(F16x x, F16x) {
  return math_silu(x);
}
static ACCEL_INLINE F16x f_swiglu(F16x x, F16x y) {
  return math_swiglu(x, y);
}
static ACCEL_INLINE F16x f_exp(F16x x, F16x) {
  return math_exp(x);
}
static ACCEL_INLINE F16x f_log(F16x x, F16x) {
  return math_log(x);
}
static ACCEL_INLINE F16x f_log1p(F16x x, F16x) {
  return math_log1p(x);
}
static ACCEL_INLINE F16x f_tanh(F16x x, F16x) {
  return math_tanh(x);
}
static ACCEL_INLINE F16x f_erf(F16x x, F16x) {
  return math_erf(x);
}
static ACCEL_INLINE F16x f_sin(F16x x, F16x) {
  return math_sin(x);
}
static ACCEL_INLINE F16x f_cos(F16x x, F16x) {
  return math_cos(x);
}

static ACCEL_INLINE F16x f_sigmoid(F16x x, F16x) {
  return math_sigmoid(x);
}
static ACCEL_INLINE F16x f_softplus(F16x x, F16x) {
  return math_softplus(x);
}
static ACCEL_INLINE F16x f_gelu_erf(F16x x, F16x) {
  return math_gelu_erf(x);
}
static ACCEL_INLINE F16x f_gelu_tanh(F16x x, F16x) {
  return math_gelu_tanh(x);
}

// The elements of a chunk, of a kernel whose parameters begin with their count.
template <void (*span)(const KernelArgs*, u64, u64)>
static void span_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const Range r = range_of(*(const u32*)a->params, 16, chunk, n_chunks);
  span(a, r.lo, r.hi);
}
static u32 elementwise_chunks(const void* params, u32 threads) {
  return chunks_of(((const ElementwiseParams*)params)->n, kGrain, threads);
}

// Sixteen elements of an operand whose block is 1 are one value.
template <class T>
static ACCEL_INLINE F16x operand_at(const T* x, u64 i, bool one, int n) {
  if (one) {
    T same[16];
    for (int k = 0; k < 16; ++k) same[k] = x[0];
    return load(same);
  }
  return n == 16 ? load(x + i) : load_n(x + i, n);
}

template <F16x (*f)(F16x, F16x), class X, class Y>
static ACCEL_INLINE void map_run(const X* x, const X* y, Y* out, u64 n, bool x_one, bool y_one) {
  u64 i = 0;
  for (; i + 16 <= n; i += 16)
    store(out + i, f(operand_at(x, i, x_one, 16), operand_at(y, i, y_one, 16)));
  if (i < n) {
    const int rest = (int)(n - i);
    store_n(out + i, f(operand_at(x, i, x_one, rest), operand_at(y, i, y_one, rest)), rest);
  }
}

// out[i] = f(x[i mod x_block], y[i mod y_block])
template <F16x (*f)(F16x, F16x), class X, class Y>
static void map_two(const KernelArgs* a, u64 lo, u64 hi) {
  const ElementwiseParams& p = *(const ElementwiseParams*)a->params;
  const X* x = (const X*)a->buf[0];
  const X* y = (const X*)a->buf[1];
  Y* out = (Y*)a->buf[2];
  const bool x_one = p.x_block == 1, y_one = p.y_block == 1;
  u64 i = lo;
  while (i < hi) {
    const u64 xi = i % p.x_block, yi = i % p.y_block;
    u64 n = hi - i;
    if (!x_one) n = at_most(n, p.x_block - xi);
    if (!y_one) n = at_most(n, p.y_block - yi);
    if (x_one) map_run<f, X, Y>(x, y + yi, out + i, n, true, y_one);
    else if (y_one) map_run<f, X, Y>(x + xi, y, out + i, n, false, true);
    else map_run<f, X, Y>(x + xi, y + yi, out + i, n, false, false);
    i += n;
  }
}

// out[i] = f(x[i mod x_block], p, q)
template <F16x (*f)(F16x, F16x, F16x), class X, class Y>
static ACCEL_INLINE void map_with(const KernelArgs* a, u64 lo, u64 hi, u64 x_block, F16x p,
                                  F16x q) {
  const X* x = (const X*)a->buf[0];
  Y* out = (Y*)a->buf[1];
  u64 i = lo;
  while (i < hi) {
    const bool one = x_block == 1;
    const u64 xi = i % x_block, n = one ? hi - i : at_most(hi - i, x_block - xi);
    u64 k = 0;
    for (; k + 16 <= n; k += 16) store(out + i + k, f(operand_at(x + xi, k, one, 16), p, q));
    const int rest = (int)(n - k);
    if (rest) store_n(out + i + k, f(operand_at(x + xi, k, one, rest), p, q), rest);
    i += n;
  }
}
template <F16x (*f)(F16x, F16x)>
static ACCEL_INLINE F16x of_two(F16x x, F16x p, F16x) {
  return f(x, p);
}
template <F16x (*f)(F16x, F16x), class X, class Y>
static void map_one(const KernelArgs* a, u64 lo, u64 hi) {
  const ElementwiseParams& p = *(const ElementwiseParams*)a->params;
  const F16x none = splat(0.0f);
  map_with<of_two<f>, X, Y>(a, lo, hi, p.x_block, none, none);
}
template <class X>
static void scale_run(const KernelArgs* a, u64 lo, u64 hi) {
  const ElementwiseParams& p = *(const ElementwiseParams*)a->params;
  const F16x factor = splat(__builtin_bit_cast(float, a->scalar[0]));
  map_with<of_two<f_mul>, X, X>(a, lo, hi, p.x_block, factor, factor);
}

static u32 clamp_chunks(const void* params, u32 threads) {
  return chunks_of(((const ClampParams*)params)->n, kGrain, threads);
}
// Comparisons with NaN are false, so it stays.
static ACCEL_INLINE F16x f_clamp(F16x x, F16x low, F16x high) {
  return select(x < low, low, select(high < x, high, x));
}
template <class X>
static void clamp_run(const KernelArgs* a, u64 lo, u64 hi) {
  const ClampParams& p = *(const ClampParams*)a->params;
  map_with<f_clamp, X, X>(a, lo, hi, p.x_block, splat(p.low), splat(p.high));
}
