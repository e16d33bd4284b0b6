// rms_norm and l2_norm, sums in lane16: sixteen threads a row, or of long rows a group each.
#include "kernel.h"
#include "lanes.h"
#include "shared/params/rows.h"

#define ROWS_A_GROUP 16  // of sixteen threads each
#define ROW_THREADS 256  // of a row's own group
#define ROW_FLOATS 4096  // of a row at a time

template <class T, class Exchange>
kernel void rms_norm(device const T* x [[buffer(0)]], device const float* gain [[buffer(1)]],
                     device T* out [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const bool here = row < p.rows;
  const ulong start = ulong(row) * p.width;
  float a = 0.0f;
  for (uint i = lane; here && i < p.width; i += 16) {
    const float v = widen(x[start + i]);
    a = fma(v, v, a);
  }
  const float squares = Exchange::sum16(a, slots, index);
  const float scale = 1.0f / sqrt(squares / float(p.width) + p.eps);
  for (uint i = lane; here && i < p.width; i += 16)
    out[start + i] = narrow<T>(widen(x[start + i]) * scale * gain[i]);
}

template <class Exchange>
kernel void l2_norm(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    constant RowsParams& p [[buffer(PARAMS)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const bool here = row < p.rows;
  const ulong start = ulong(row) * p.width;
  float a = 0.0f;
  for (uint i = lane; here && i < p.width; i += 16) {
    const float v = x[start + i];
    a = fma(v, v, a);
  }
  const float scale = 1.0f / sqrt(Exchange::sum16(a, slots, index) + p.eps);
  for (uint i = lane; here && i < p.width; i += 16) out[start + i] = x[start + i] * scale;
}

// The squares of a row, for every thread: all of them bring it to threadgroup memory, since a lane
// that waits for each of its reads would take longer than the sums; sixteen walk it there.
template <class T, class Exchange>
static inline float row_squares(device const T* x, uint width, threadgroup float* held,
                                threadgroup float* slots, uint index) {
  float a = 0.0f;
  for (uint first = 0; first < width; first += ROW_FLOATS) {
    const uint n = min(uint(ROW_FLOATS), width - first);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = index; i < n; i += ROW_THREADS) held[i] = widen(x[first + i]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = index; index < 16 && i < n; i += 16) a = fma(held[i], held[i], a);
  }
  a = Exchange::sum16(a, slots, index);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  if (index == 0) slots[0] = a;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return slots[0];
}

template <class T, class Exchange>
kernel void rms_norm_row(device const T* x [[buffer(0)]], device const float* gain [[buffer(1)]],
                         device T* out [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                         uint row [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]]) {
  threadgroup float held[ROW_FLOATS], slots[ROW_THREADS];
  const ulong start = ulong(row) * p.width;
  const float squares = row_squares<T, Exchange>(x + start, p.width, held, slots, index);
  const float scale = 1.0f / sqrt(squares / float(p.width) + p.eps);
  for (uint i = index; i < p.width; i += ROW_THREADS)
    out[start + i] = narrow<T>(widen(x[start + i]) * scale * gain[i]);
}

template <class Exchange>
kernel void l2_norm_row(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                        constant RowsParams& p [[buffer(PARAMS)]],
                        uint row [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]]) {
  threadgroup float held[ROW_FLOATS], slots[ROW_THREADS];
  const ulong start = ulong(row) * p.width;
  const float squares = row_squares<float, Exchange>(x + start, p.width, held, slots, index);
  const float scale = 1.0f / sqrt(squares + p.eps);
  for (uint i = index; i < p.width; i += ROW_THREADS) out[start + i] = x[start + i] * scale;
}

template [[host_name("rms_norm_f32")]] [[kernel]] decltype(rms_norm<float, Simd>)
    rms_norm<float, Simd>;
template [[host_name("rms_norm_f32_plain")]] [[kernel]] decltype(rms_norm<float, Plain>)
    rms_norm<float, Plain>;
template [[host_name("rms_norm_f16")]] [[kernel]] decltype(rms_norm<half, Simd>)
    rms_norm<half, Simd>;
template [[host_name("rms_norm_f16_plain")]] [[kernel]] decltype(rms_norm<half, Plain>)
    rms_norm<half, Plain>;
template [[host_name("l2_norm_f32")]] [[kernel]] decltype(l2_norm<Simd>) l2_norm<Simd>;
template [[host_name("l2_norm_f32_plain")]] [[kernel]] decltype(l2_norm<Plain>) l2_norm<Plain>;
template [[host_name("rms_norm_f32_row")]] [[kernel]] decltype(rms_norm_row<float, Simd>)
    rms_norm_row<float, Simd>;
template [[host_name("rms_norm_f32_plain_row")]] [[kernel]] decltype(rms_norm_row<float, Plain>)
    rms_norm_row<float, Plain>;
template [[host_name("rms_norm_f16_row")]] [[kernel]] decltype(rms_norm_row<half, Simd>)
    rms_norm_row<half, Simd>;
template [[host_name("rms_norm_f16_plain_row")]] [[kernel]] decltype(rms_norm_row<half, Plain>)
    rms_norm_row<half, Plain>;
template [[host_name("l2_norm_f32_row")]] [[kernel]] decltype(l2_norm_row<Simd>) l2_norm_row<Simd>;
template [[host_name("l2_norm_f32_plain_row")]] [[kernel]] decltype(l2_norm_row<Plain>)
    l2_norm_row<Plain>;
