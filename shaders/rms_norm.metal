// rms_norm and l2_norm, sums in lane16: sixteen threads a row, or of long rows a group each. What a
// thread reads is on its way at once and stays with it: to wait for one read after another would
// take longer than the sums, and to read again as long once more. Behind a row there are zeros,
// which change no sum of squares.
#include "kernel.h"
#include "lanes.h"
#include "shared/params/rows.h"
#include "shared/row_parts.h"

#define ROWS_A_GROUP 16  // of sixteen threads each
#define ROW_THREADS 256  // of a row's own group
#define AHEAD 16         // elements of a lane that are on their way
#define STRETCH (16 * AHEAD)
#define SHORT_EACH (kShortRow / 16)  // elements of a thread, of a short row and of one held whole
#define HELD_EACH (kHeldRow / ROW_THREADS)

// The elements of thread `index` of `threads`, at most `most` of them.
template <uint threads, uint most, class T>
static inline void read_own(device const T* x, uint width, uint index, thread float* own) {
#pragma unroll
  for (uint j = 0; j < most; ++j) {
    if (j * threads >= width) break;
    const uint i = index + j * threads;
    own[j] = i < width ? widen(x[i]) : 0.0f;
  }
}

static inline float short_squares(thread const float* own, uint width) {
  float a = 0.0f;
#pragma unroll
  for (uint j = 0; j < SHORT_EACH; ++j) {
    if (j * 16 >= width) break;
    const float v = own[j];
    a = fma(v, v, a);
  }
  return a;
}

template <class T, class Exchange>
kernel void rms_norm(device const T* x [[buffer(0)]], device const float* gain [[buffer(1)]],
                     device T* out [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const uint width = row < p.rows ? p.width : 0;
  const ulong start = ulong(row) * p.width;
  float own[SHORT_EACH], g[SHORT_EACH];
  read_own<16, SHORT_EACH>(x + start, width, lane, own);
  read_own<16, SHORT_EACH>(gain, width, lane, g);
  const float squares = Exchange::sum16(short_squares(own, width), slots, index);
  const float scale = 1.0f / sqrt(squares / float(p.width) + p.eps);
#pragma unroll
  for (uint j = 0; j < SHORT_EACH; ++j) {
    if (j * 16 >= width) break;
    const uint i = lane + j * 16;
    if (i < width) out[start + i] = narrow<T>(own[j] * scale * g[j]);
  }
}

template <class Exchange>
kernel void l2_norm(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    constant RowsParams& p [[buffer(PARAMS)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const uint width = row < p.rows ? p.width : 0;
  const ulong start = ulong(row) * p.width;
  float own[SHORT_EACH];
  read_own<16, SHORT_EACH>(x + start, width, lane, own);
  const float scale = 1.0f / sqrt(Exchange::sum16(short_squares(own, width), slots, index) + p.eps);
#pragma unroll
  for (uint j = 0; j < SHORT_EACH; ++j) {
    if (j * 16 >= width) break;
    const uint i = lane + j * 16;
    if (i < width) out[start + i] = own[j] * scale;
  }
}

// A lane's chain over whole stretches of what is held, goes on from a; the reads of one stretch are
// under way while those of the one before are added.
static inline float add_squares(threadgroup const float* held, uint n, uint lane, float a) {
  float next[AHEAD], now[AHEAD];
#pragma unroll
  for (uint j = 0; j < AHEAD; ++j) next[j] = held[lane + j * 16];
  for (uint first = STRETCH; first <= n; first += STRETCH) {
#pragma unroll
    for (uint j = 0; j < AHEAD; ++j) now[j] = next[j];
#pragma unroll
    for (uint j = 0; j < AHEAD; ++j)
      if (first < n) next[j] = held[lane + first + j * 16];
#pragma unroll
    for (uint j = 0; j < AHEAD; ++j) {
      const float v = now[j];
      a = fma(v, v, a);
    }
  }
  return a;
}

// The sum of the first sixteen threads' chains, for every thread.
template <class Exchange>
static inline float sum_for_all(float a, threadgroup float* slots, uint index) {
  a = Exchange::sum16(a, slots, index);
  if (index == 0) slots[ROW_THREADS] = a;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return slots[ROW_THREADS];
}

// Of a row that its threads hold, through memory of the group.
template <class Exchange>
static inline float held_squares(thread const float* own, uint width, threadgroup float* held,
                                 threadgroup float* slots, uint index) {
#pragma unroll
  for (uint j = 0; j < HELD_EACH; ++j) {
    if (j * ROW_THREADS >= width) break;
    held[index + j * ROW_THREADS] = own[j];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const uint whole = (width + STRETCH - 1) / STRETCH * STRETCH;
  return sum_for_all<Exchange>(index < 16 ? add_squares(held, whole, index, 0.0f) : 0.0f, slots,
                               index);
}

// Of a longer row, kHeldRow elements at a time.
template <class T, class Exchange>
static inline float long_squares(device const T* x, uint width, threadgroup float* held,
                                 threadgroup float* slots, uint index) {
  float a = 0.0f;
  for (uint first = 0; first < width; first += kHeldRow) {
    const uint n = min(uint(kHeldRow), width - first);
    float own[HELD_EACH];
    read_own<ROW_THREADS, HELD_EACH>(x + first, n, index, own);
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
    for (uint j = 0; j < HELD_EACH; ++j) {
      if (j * ROW_THREADS >= n) break;
      held[index + j * ROW_THREADS] = own[j];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < 16) a = add_squares(held, (n + STRETCH - 1) / STRETCH * STRETCH, index, a);
  }
  return sum_for_all<Exchange>(a, slots, index);
}

template <class T, class Exchange>
kernel void rms_norm_row(device const T* x [[buffer(0)]], device const float* gain [[buffer(1)]],
                         device T* out [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                         uint row [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]]) {
  threadgroup float held[kHeldRow], slots[ROW_THREADS + 1];
  const ulong start = ulong(row) * p.width;
  float own[HELD_EACH], g[HELD_EACH];
  read_own<ROW_THREADS, HELD_EACH>(x + start, p.width, index, own);
  read_own<ROW_THREADS, HELD_EACH>(gain, p.width, index, g);
  const float squares = held_squares<Exchange>(own, p.width, held, slots, index);
  const float scale = 1.0f / sqrt(squares / float(p.width) + p.eps);
#pragma unroll
  for (uint j = 0; j < HELD_EACH; ++j) {
    if (j * ROW_THREADS >= p.width) break;
    const uint i = index + j * ROW_THREADS;
    if (i < p.width) out[start + i] = narrow<T>(own[j] * scale * g[j]);
  }
}

template <class T, class Exchange>
kernel void rms_norm_long(device const T* x [[buffer(0)]], device const float* gain [[buffer(1)]],
                          device T* out [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                          uint row [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]]) {
  threadgroup float held[kHeldRow], slots[ROW_THREADS + 1];
  const ulong start = ulong(row) * p.width;
  const float squares = long_squares<T, Exchange>(x + start, p.width, held, slots, index);
  const float scale = 1.0f / sqrt(squares / float(p.width) + p.eps);
  for (uint i = index; i < p.width; i += ROW_THREADS)
    out[start + i] = narrow<T>(widen(x[start + i]) * scale * gain[i]);
}

template <class Exchange>
kernel void l2_norm_row(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                        constant RowsParams& p [[buffer(PARAMS)]],
                        uint row [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]]) {
  threadgroup float held[kHeldRow], slots[ROW_THREADS + 1];
  const ulong start = ulong(row) * p.width;
  float own[HELD_EACH];
  read_own<ROW_THREADS, HELD_EACH>(x + start, p.width, index, own);
  const float squares = held_squares<Exchange>(own, p.width, held, slots, index);
  const float scale = 1.0f / sqrt(squares + p.eps);
#pragma unroll
  for (uint j = 0; j < HELD_EACH; ++j) {
    if (j * ROW_THREADS >= p.width) break;
    const uint i = index + j * ROW_THREADS;
    if (i < p.width) out[start + i] = own[j] * scale;
  }
}

template <class Exchange>
kernel void l2_norm_long(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                         constant RowsParams& p [[buffer(PARAMS)]],
                         uint row [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]]) {
  threadgroup float held[kHeldRow], slots[ROW_THREADS + 1];
  const ulong start = ulong(row) * p.width;
  const float squares = long_squares<float, Exchange>(x + start, p.width, held, slots, index);
  const float scale = 1.0f / sqrt(squares + p.eps);
  for (uint i = index; i < p.width; i += ROW_THREADS) out[start + i] = x[start + i] * scale;
}

#define RMS_NORM(T, name, Exchange)                                                            \
  template [[host_name(name)]] [[kernel]] decltype(rms_norm<T, Exchange>) rms_norm<T, Exchange>; \
  template [[host_name(name "_row")]] [[kernel]] decltype(rms_norm_row<T, Exchange>)           \
      rms_norm_row<T, Exchange>;                                                               \
  template [[host_name(name "_long")]] [[kernel]] decltype(rms_norm_long<T, Exchange>)         \
      rms_norm_long<T, Exchange>;
#define L2_NORM(name, Exchange)                                                              \
  template [[host_name(name)]] [[kernel]] decltype(l2_norm<Exchange>) l2_norm<Exchange>;     \
  template [[host_name(name "_row")]] [[kernel]] decltype(l2_norm_row<Exchange>)             \
      l2_norm_row<Exchange>;                                                                 \
  template [[host_name(name "_long")]] [[kernel]] decltype(l2_norm_long<Exchange>)           \
      l2_norm_long<Exchange>;
RMS_NORM(float, "rms_norm_f32", Simd)
RMS_NORM(float, "rms_norm_f32_plain", Plain)
RMS_NORM(half, "rms_norm_f16", Simd)
RMS_NORM(half, "rms_norm_f16_plain", Plain)
L2_NORM("l2_norm_f32", Simd)
L2_NORM("l2_norm_f32_plain", Plain)
