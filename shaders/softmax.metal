// softmax and log_softmax. Rows of up to 1024: sixteen threads a row, sums in lane16. Longer rows:
// 256 threads a row, sums in lane256 (256 lanes, then lane i adds lane i + h for h = 128, ..., 1).
// A NaN is no maximum; the differences bring it back.
#include "kernel.h"
#include "lanes.h"
#include "float_math.h"
#include "shared/params/rows.h"

#define ROWS_A_GROUP 16
#define LANES 256

template <bool log>
static inline float finished(float x, float e, float most, float sum, float log_sum) {
  return log ? (x - most) - log_sum : e / sum;
}

template <bool log, class Exchange>
kernel void softmax(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    constant RowsParams& p [[buffer(PARAMS)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const uint width = row < p.rows ? p.width : 0;
  const ulong start = ulong(row) * p.width;
  float most = -INFINITY;
  for (uint c = lane; c < width; c += 16) most = x[start + c] > most ? x[start + c] : most;
  most = Exchange::max16(most, slots, index);
  float sum = 0.0f;
  for (uint c = lane; c < width; c += 16) sum = sum + math_exp(x[start + c] - most);
  sum = Exchange::sum16(sum, slots, index);
  const float log_sum = log ? math_log(sum) : 0.0f;
  for (uint c = lane; c < width; c += 16) {
    const float v = x[start + c], e = log ? 0.0f : math_exp(v - most);
    out[start + c] = finished<log>(v, e, most, sum, log_sum);
  }
}

// The folds end with a barrier, so that the slots are free again.
static inline float fold_max(float a, threadgroup float* slots, uint index) {
  slots[index] = a;
  for (uint h = LANES / 2; h > 0; h /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < h && slots[index + h] > slots[index]) slots[index] = slots[index + h];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  a = slots[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return a;
}
static inline float fold_sum(float a, threadgroup float* slots, uint index) {
  slots[index] = a;
  for (uint h = LANES / 2; h > 0; h /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < h) slots[index] = slots[index] + slots[index + h];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  a = slots[0];
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return a;
}

// The exponentials wait in the result, each for the thread that wrote it.
template <bool log>
kernel void softmax_long(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                         constant RowsParams& p [[buffer(PARAMS)]],
                         uint row [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[LANES];
  const ulong start = ulong(row) * p.width;
  float most = -INFINITY;
  for (uint c = index; c < p.width; c += LANES) most = x[start + c] > most ? x[start + c] : most;
  most = fold_max(most, slots, index);
  float sum = 0.0f;
  for (uint c = index; c < p.width; c += LANES) {
    const float e = math_exp(x[start + c] - most);
    if (!log) out[start + c] = e;
    sum = sum + e;
  }
  sum = fold_sum(sum, slots, index);
  const float log_sum = log ? math_log(sum) : 0.0f;
  for (uint c = index; c < p.width; c += LANES) {
    const float v = log ? x[start + c] : 0.0f, e = log ? 0.0f : out[start + c];
    out[start + c] = finished<log>(v, e, most, sum, log_sum);
  }
}

template [[host_name("softmax_f32")]] [[kernel]] decltype(softmax<false, Simd>)
    softmax<false, Simd>;
template [[host_name("softmax_f32_plain")]] [[kernel]] decltype(softmax<false, Plain>)
    softmax<false, Plain>;
template [[host_name("log_softmax_f32")]] [[kernel]] decltype(softmax<true, Simd>)
    softmax<true, Simd>;
template [[host_name("log_softmax_f32_plain")]] [[kernel]] decltype(softmax<true, Plain>)
    softmax<true, Plain>;
template [[host_name("softmax_long_f32")]] [[kernel]] decltype(softmax_long<false>)
    softmax_long<false>;
template [[host_name("log_softmax_long_f32")]] [[kernel]] decltype(softmax_long<true>)
    softmax_long<true>;
