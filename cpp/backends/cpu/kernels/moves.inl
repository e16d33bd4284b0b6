// What only moves values: copy, contiguous, the gathers, scatter_rows, take, concat.

static u32 copy_chunks(const void* params, u32 threads) {
  const CopyParams& p = *(const CopyParams*)params;
  return chunks_of(((u64)p.hi << 32) + p.lo, 8 * kGrain, threads);
}
static void copy_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const CopyParams& p = *(const CopyParams*)a->params;
  const Range r = range_of(((u64)p.hi << 32) + p.lo, 64, chunk, n_chunks);
  __builtin_memcpy((u8*)a->buf[1] + r.lo, (const u8*)a->buf[0] + r.lo, r.hi - r.lo);
}

static u32 contiguous_chunks(const void* params, u32 threads) {
  return chunks_of(((const ContiguousParams*)params)->n, kGrain, threads);
}
// The output is walked in order; `at` holds its coordinates and `from` the source index they lead
// to.
template <class T>
static void contiguous_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const ContiguousParams& p = *(const ContiguousParams*)a->params;
  const T* x = (const T*)a->buf[0];
  T* out = (T*)a->buf[1];
  const Range r = range_of(p.n, 16, chunk, n_chunks);
  const int last = (int)p.rank - 1;
  u64 at[8] = {}, from = 0, left = r.lo;
  for (int axis = last; axis >= 0; --axis) {
    at[axis] = left % p.shape[axis];
    left /= p.shape[axis];
    from += at[axis] * p.strides[axis];
  }
  u64 i = r.lo;
  while (i < r.hi) {
    const u64 n = at_most(r.hi - i, p.shape[last] - at[last]), step = p.strides[last];
    if (step == 1) __builtin_memcpy(out + i, x + from, n * sizeof(T));
    else
      for (u64 k = 0; k < n; ++k) out[i + k] = x[from + k * step];
    i += n;
    at[last] += n;
    from += n * step;
    for (int axis = last; axis > 0 && at[axis] == p.shape[axis]; --axis) {
      from += p.strides[axis - 1] - at[axis] * p.strides[axis];
      at[axis] = 0;
      ++at[axis - 1];
    }
  }
}

static u32 gather_chunks(const void* params, u32 threads) {
  const GatherRowsParams& p = *(const GatherRowsParams*)params;
  return chunks_of((u64)p.n * p.width, kGrain, threads);
}
template <class T>
static void gather_rows_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const GatherRowsParams& p = *(const GatherRowsParams*)a->params;
  const T* table = (const T*)a->buf[0];    // [table_rows, width]
  const u32* ids = (const u32*)a->buf[1];  // [n]
  float* out = (float*)a->buf[2];          // [n, width]
  const Range r = range_of(p.n, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    const bool inside = ids[row] < p.table_rows;
    const T* x = table + (inside ? (u64)ids[row] * p.width : 0);
    float* to = out + row * p.width;
    u32 c = 0;
    for (; c + 16 <= p.width; c += 16) store(to + c, inside ? load(x + c) : splat(0.0f));
    const int rest = (int)(p.width - c);
    if (rest) store_n(to + c, inside ? load_n(x + c, rest) : splat(0.0f), rest);
  }
}

// quants [table_rows, width], one f16 scale for each 32 of the flat index; the product is exact.
static void quant_gather_rows_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const GatherRowsParams& p = *(const GatherRowsParams*)a->params;
  const signed char* quants = (const signed char*)a->buf[0];
  const f16* scales = (const f16*)a->buf[1];
  const u32* ids = (const u32*)a->buf[2];
  float* out = (float*)a->buf[3];
  const Range r = range_of(p.n, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    const bool inside = ids[row] < p.table_rows;
    const u64 flat = inside ? (u64)ids[row] * p.width : 0;
    float* to = out + row * p.width;
    for (u32 c = 0; c < p.width;) {
      // At most 16 elements, and none past the end of its scale's block.
      const u64 i = flat + c;
      const int n = (int)at_most(at_most(16, 32 - i % 32), p.width - c);
      f16 same[16];
      for (int k = 0; k < 16; ++k) same[k] = inside ? scales[i / 32] : f16{0};
      store_n(to + c, inside ? load_n(quants + i, n) * load(same) : splat(0.0f), n);
      c += (u32)n;
    }
  }
}

// Chunks are columns: each takes all rows in order, so the last of equal ids wins whoever runs
// what.
static u32 scatter_chunks(const void* params, u32 threads) {
  const ScatterRowsParams& p = *(const ScatterRowsParams*)params;
  const u32 n = chunks_of((u64)p.n * p.width, kGrain, threads);
  return (u32)at_most(n, (p.width + 63) / 64);
}
template <class T>
static void scatter_rows_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const ScatterRowsParams& p = *(const ScatterRowsParams*)a->params;
  T* state = (T*)a->buf[0];                // [capacity, width]
  const T* rows = (const T*)a->buf[1];     // [n, width]
  const u32* ids = (const u32*)a->buf[2];  // [n]
  const Range r = range_of(p.width, 64, chunk, n_chunks);
  for (u64 row = 0; row < p.n; ++row) {
    if (ids[row] >= p.capacity) continue;
    __builtin_memcpy(state + (u64)ids[row] * p.width + r.lo, rows + row * p.width + r.lo,
                     (r.hi - r.lo) * sizeof(T));
  }
}

static u32 take_chunks(const void* params, u32 threads) {
  return chunks_of(((const RowsParams*)params)->rows, kGrain, threads);
}
template <class T>
static void take_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const T* x = (const T*)a->buf[0];        // [rows, width]
  const u32* ids = (const u32*)a->buf[1];  // [rows]
  T* out = (T*)a->buf[2];                  // [rows]
  const Range r = range_of(p.rows, 16, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row)
    out[row] = ids[row] < p.width ? x[row * p.width + ids[row]] : (T)0;
}

static u32 concat_chunks(const void* params, u32 threads) {
  return chunks_of(((const ConcatParams*)params)->n, kGrain, threads);
}
// Elements [r.lo, r.hi) of one operand, in its own order, to where they stand in the result.
template <class T>
static void concat_part(const ConcatPart& p, const T* x, T* out, Range r) {
  u64 at[8] = {}, from = 0, to = p.first, left = r.lo;
  for (int axis = 7; axis >= 0; --axis) {
    at[axis] = left % p.extent[axis];
    left /= p.extent[axis];
    from += at[axis] * p.from[axis];
    to += at[axis] * p.to[axis];
  }
  u64 i = r.lo;
  while (i < r.hi) {
    const u64 n = at_most(r.hi - i, p.extent[7] - at[7]), step = p.from[7], stride = p.to[7];
    if (step == 1 && stride == 1) __builtin_memcpy(out + to, x + from, n * sizeof(T));
    else
      for (u64 k = 0; k < n; ++k) out[to + k * stride] = x[from + k * step];
    i += n;
    at[7] += n;
    from += n * step;
    to += n * stride;
    for (int axis = 7; axis > 0 && at[axis] == p.extent[axis]; --axis) {
      from += p.from[axis - 1] - at[axis] * p.from[axis];
      to += p.to[axis - 1] - at[axis] * p.to[axis];
      at[axis] = 0;
      ++at[axis - 1];
    }
  }
}
// The chunk's range runs over all elements of the first operand, then of the second, and so on.
template <class T>
static void concat_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const ConcatParams& p = *(const ConcatParams*)a->params;
  const ConcatPart* part = (const ConcatPart*)(&p + 1);
  T* out = (T*)a->buf[p.parts];
  const Range r = range_of(p.n, 16, chunk, n_chunks);
  u64 first = 0;
  for (u32 i = 0; i < p.parts && first < r.hi; first += part[i].n, ++i) {
    if (first + part[i].n <= r.lo) continue;
    const u64 lo = r.lo > first ? r.lo - first : 0;
    concat_part(part[i], (const T*)a->buf[i], out, {lo, at_most(r.hi - first, part[i].n)});
  }
}
