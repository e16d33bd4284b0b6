// rms_norm, l2_norm, softmax, log_softmax and rope: kernels over the rows of the last axis. Sums
// have the order lane16 over the row.

static u32 rows_chunks(const void* params, u32 threads) {
  const RowsParams& p = *(const RowsParams*)params;
  return (u32)at_most(chunks_of((u64)p.rows * p.width, kGrain, threads), p.rows);
}

template <class T>
static ACCEL_INLINE float sum_of_squares(const T* x, u32 width) {
  F16x acc = splat(0.0f);
  u32 c = 0;
  for (; c + 16 <= width; c += 16) {
    const F16x v = load(x + c);
    acc = fma(v, v, acc);
  }
  if (c < width) {
    const F16x v = load_n(x + c, (int)(width - c));
    acc = fma(v, v, acc);
  }
  return sum16(acc);
}

// x / sqrt(sum(x^2) / width + eps) * gain, from left to right.
template <class T>
static void rms_norm_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const float* gain = (const float*)a->buf[1];  // [width]
  const Range r = range_of(p.rows, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    const T* x = (const T*)a->buf[0] + row * p.width;
    T* out = (T*)a->buf[2] + row * p.width;
    const F16x mean = splat(sum_of_squares(x, p.width)) / splat((float)p.width);
    const F16x scale = splat(1.0f) / sqrt(mean + splat(p.eps));
    u32 c = 0;
    for (; c + 16 <= p.width; c += 16) store(out + c, load(x + c) * scale * load(gain + c));
    const int rest = (int)(p.width - c);
    if (rest) store_n(out + c, load_n(x + c, rest) * scale * load_n(gain + c, rest), rest);
  }
}

// x / sqrt(sum(x^2) + eps), as a product with the inverse root.
static void l2_norm_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const Range r = range_of(p.rows, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    const float* x = (const float*)a->buf[0] + row * p.width;
    float* out = (float*)a->buf[1] + row * p.width;
    const F16x scale = splat(1.0f) / sqrt(splat(sum_of_squares(x, p.width)) + splat(p.eps));
    u32 c = 0;
    for (; c + 16 <= p.width; c += 16) store(out + c, load(x + c) * scale);
    const int rest = (int)(p.width - c);
    if (rest) store_n(out + c, load_n(x + c, rest) * scale, rest);
  }
}

// NaN is passed over: the differences bring it back.
static ACCEL_INLINE float row_maximum(const float* x, u32 width) {
  const float lowest = -__builtin_inff();
  F16x m0 = splat(lowest), m1 = m0, m2 = m0, m3 = m0;
  u32 c = 0;
  for (; c + 64 <= width; c += 64) {
    m0 = max(load(x + c), m0);
    m1 = max(load(x + c + 16), m1);
    m2 = max(load(x + c + 32), m2);
    m3 = max(load(x + c + 48), m3);
  }
  for (; c + 16 <= width; c += 16) m0 = max(load(x + c), m0);
  if (c < width) {
    const int rest = (int)(width - c);
    m1 = max(select(lanes_below(rest), load_n(x + c, rest), splat(lowest)), m1);
  }
  return max16(max(max(m0, m1), max(m2, m3)));
}

static ACCEL_INLINE float row_sum(const float* x, u32 width) {
  F16x acc = splat(0.0f);
  u32 c = 0;
  for (; c + 16 <= width; c += 16) acc = acc + load(x + c);
  if (c < width) acc = acc + load_n(x + c, (int)(width - c));
  return sum16(acc);
}
// out[c] = exp(x[c] - most) for the columns of r; gives their sum, which is the row's where r is
// the whole row.
static ACCEL_INLINE float exp_columns(const float* x, float* out, Range r, F16x most) {
  F16x acc = splat(0.0f);
  u64 c = r.lo;
  for (; c + 16 <= r.hi; c += 16) {
    const F16x e = math_exp(load(x + c) - most);
    store(out + c, e);
    acc = acc + e;
  }
  const int rest = (int)(r.hi - c);
  if (rest > 0) {
    store_n(out + c, math_exp(load_n(x + c, rest) - most), rest);
    acc = acc + load_n(out + c, rest);
  }
  return sum16(acc);
}

// out[c] = e[c] / sum, or (x[c] - most) - log(sum) of log_softmax, for the columns of r.
template <bool log>
static ACCEL_INLINE void finish_columns(const float* x, const float* e, float* out, Range r,
                                        F16x most, float sum) {
  const F16x last = log ? math_log(splat(sum)) : splat(0.0f);
  const Divisor d = divisor(sum);
  u64 c = r.lo;
  for (; c + 16 <= r.hi; c += 16)
    store(out + c, log ? (load(x + c) - most) - last : quotient(load(e + c), d));
  const int n = (int)(r.hi - c);
  if (n > 0)
    store_n(out + c, log ? (load_n(x + c, n) - most) - last : quotient(load_n(e + c, n), d), n);
}

// Many rows: whole rows in phase one, nothing in phase two. Up to kCutRows rows are cut into pieces
// of columns, so that one long row feeds several threads: phase one writes the exponentials to
// scratch, each piece finding the row's maximum itself, and phase two finishes, each piece summing
// the row itself, unless one piece of phase one was the whole row and has left the sum.
enum { kCutRows = 4 };
struct RowSum {
  float sum;
  u32 known;
};
static u32 softmax_chunks(const void* params, u32 threads) {
  const RowsParams& p = *(const RowsParams*)params;
  const u64 n = chunks_of((u64)p.rows * p.width, kGrain / 2, threads);
  // A piece reads its rows once more: no more pieces than threads.
  return (u32)at_most(n, p.rows > kCutRows ? p.rows : threads);
}
static u32 softmax_finish_chunks(const void* params, u32 threads) {
  const RowsParams& p = *(const RowsParams*)params;
  return p.rows > kCutRows ? 1 : softmax_chunks(params, threads);
}
static u64 softmax_shared(const void* params) {
  const RowsParams& p = *(const RowsParams*)params;
  return p.rows > kCutRows ? 0 : 4 * p.rows * round_up(p.width, 16) + kCutRows * sizeof(RowSum);
}
// The sums stand behind the exponentials.
static ACCEL_INLINE RowSum* row_sums(const KernelArgs* a, const RowsParams& p) {
  return (RowSum*)((float*)a->shared + p.rows * round_up(p.width, 16));
}
// Columns of row `row` in r, a range of the rows padded to whole vectors.
static ACCEL_INLINE Range columns_in(Range r, u64 row, u64 padded, u32 width) {
  const u64 start = row * padded, lo = r.lo > start ? r.lo - start : 0;
  return {at_most(lo, width), at_most(r.hi - start, width)};
}
template <bool log>
static void softmax_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const float* x = (const float*)a->buf[0];
  float* out = (float*)a->buf[1];
  if (p.rows > kCutRows) {
    const Range rows = range_of(p.rows, 1, chunk, n_chunks);
    for (u64 row = rows.lo; row < rows.hi; ++row) {
      const float* from = x + row * p.width;
      float* to = out + row * p.width;
      const F16x most = splat(row_maximum(from, p.width));
      const float sum = exp_columns(from, to, {0, p.width}, most);
      finish_columns<log>(from, to, to, {0, p.width}, most, sum);
    }
    return;
  }
  const u64 padded = round_up(p.width, 16);
  const Range r = range_of(p.rows * padded, 16, chunk, n_chunks);
  for (u64 row = r.lo / padded; row * padded < r.hi; ++row) {
    const float* from = x + row * p.width;
    const Range columns = columns_in(r, row, padded, p.width);
    const float sum = exp_columns(from, (float*)a->shared + row * padded, columns,
                                  splat(row_maximum(from, p.width)));
    if (columns.lo == 0) row_sums(a, p)[row] = {sum, columns.hi == p.width};
  }
}
template <bool log>
static void softmax_finish_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  if (p.rows > kCutRows) return;
  const u64 padded = round_up(p.width, 16);
  const Range r = range_of(p.rows * padded, 16, chunk, n_chunks);
  for (u64 row = r.lo / padded; row * padded < r.hi; ++row) {
    const float* x = (const float*)a->buf[0] + row * p.width;
    const float* e = (const float*)a->shared + row * padded;
    const F16x most = splat(log ? row_maximum(x, p.width) : 0.0f);
    const RowSum known = row_sums(a, p)[row];
    finish_columns<log>(x, e, (float*)a->buf[1] + row * p.width,
                        columns_in(r, row, padded, p.width), most,
                        known.known ? known.sum : row_sum(e, p.width));
  }
}

// ---------------------------------------------------------------- rope

static u32 rope_chunks(const void* params, u32 threads) {
  const RopeParams& p = *(const RopeParams*)params;
  return (u32)at_most(chunks_of((u64)p.rows * p.width, kGrain / 4, threads), p.rows);
}
static u64 rope_local(const void* params) {
  return 8 * round_up(((const RopeParams*)params)->rotary_dim / 2, 16);
}
// cosines and sines of position * frequencies[k]
static ACCEL_INLINE void rope_angles(const float* frequencies, u32 position, u32 n, float* cosines,
                                     float* sines) {
  const F16x at = splat((float)position);
  for (u32 k = 0; k < n; k += 16) {
    const int rest = (int)at_most(16, n - k);
    const F16x theta = at * load_n(frequencies + k, rest);
    store(cosines + k, math_cos(theta));
    store(sines + k, math_sin(theta));
  }
}
static void rope_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const RopeParams& p = *(const RopeParams*)a->params;
  const u32* positions = (const u32*)a->buf[1];        // [rows / rows_per_position]
  const float* frequencies = (const float*)a->buf[2];  // [rotary_dim / 2]
  const u32 half = p.rotary_dim / 2;
  float* cosines = (float*)local;
  float* sines = cosines + round_up(half, 16);
  const u64 partner = p.halves ? half : 1, step = p.halves ? 1 : 2;
  const Range r = range_of(p.rows, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    if (row == r.lo || row % p.rows_per_position == 0)
      rope_angles(frequencies, positions[row / p.rows_per_position], half, cosines, sines);
    const float* x = (const float*)a->buf[0] + row * p.width;
    float* out = (float*)a->buf[3] + row * p.width;
    for (u32 k = 0; k < half; ++k) {
      const float u = x[k * step], v = x[k * step + partner];
      out[k * step] = u * cosines[k] - v * sines[k];
      out[k * step + partner] = u * sines[k] + v * cosines[k];
    }
    for (u32 c = p.rotary_dim; c < p.width; ++c) out[c] = x[c];
  }
}
