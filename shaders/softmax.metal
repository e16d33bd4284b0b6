// softmax and log_softmax. Rows of up to 1024: sixteen threads a row, sums in lane16. Longer rows:
// sums in lane256 (256 lanes, then lane i adds lane i + h for h = 128, ..., 1), by 256 threads a
// row. From kSplitRow on many groups share a row, with the same bits: the greatest of each part,
// the sums of a few lanes a group, and the result of each part.
// A NaN is no maximum; the differences bring it back.
#include "kernel.h"
#include "lanes.h"
#include "float_math.h"
#include "shared/params/rows.h"
#include "shared/row_parts.h"

#define ROWS_A_GROUP 16
#define LANES 256
#define EACH (kRowPart / LANES)  // elements of a part that a thread has
#define STEPS 768                // of the lanes of a group, that it holds at a time
#define AHEAD 16                 // of them that a lane has on their way
#define READS 8                  // of a thread that are on their way

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

static inline uint parts_of(uint width) {
  return (width + kRowPart - 1) / kRowPart;
}
// In scratch, of each row: the greatest of each part, the sums of the lanes, the greatest of all.
static inline ulong kept_of(uint row, uint width) {
  return ulong(row) * (parts_of(width) + LANES + 1);
}
// The elements of a part that a thread has, all of them on their way at once.
static inline void read_part(device const float* x, uint first, uint width, thread float* v) {
#pragma unroll
  for (uint j = 0; j < EACH; ++j)
    v[j] = first + j * LANES < width ? x[first + j * LANES] : -INFINITY;
}

kernel void row_maxima(device const float* x [[buffer(0)]],
                       constant RowsParams& p [[buffer(PARAMS)]],
                       device float* scratch [[buffer(SCRATCH)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[LANES];
  const uint parts = parts_of(p.width), row = group / parts, part = group % parts;
  float v[EACH], most = -INFINITY;
  read_part(x + ulong(row) * p.width, part * kRowPart + index, p.width, v);
#pragma unroll
  for (uint j = 0; j < EACH; ++j) most = v[j] > most ? v[j] : most;
  most = fold_max(most, slots, index);
  if (index == 0) scratch[kept_of(row, p.width) + part] = most;
}

// The sum goes on over whole stretches of AHEAD steps; the reads of one are under way while those
// of the stretch before are added.
static inline float add_steps(threadgroup const float* held, uint steps, float sum) {
  float next[AHEAD], now[AHEAD];
#pragma unroll
  for (uint j = 0; j < AHEAD; ++j) next[j] = held[j * kSumShare];
  for (uint first = AHEAD; first <= steps; first += AHEAD) {
#pragma unroll
    for (uint j = 0; j < AHEAD; ++j) now[j] = next[j];
#pragma unroll
    for (uint j = 0; j < AHEAD; ++j)
      if (first < steps) next[j] = held[(first + j) * kSumShare];
#pragma unroll
    for (uint j = 0; j < AHEAD; ++j) sum = sum + now[j];
  }
  return sum;
}

// A group has kSumShare of the 256 lanes: all its threads make exponentials, those lanes add them.
// Beyond the row they are 0, which changes no sum.
kernel void row_sums(device const float* x [[buffer(0)]], constant RowsParams& p [[buffer(PARAMS)]],
                     device float* scratch [[buffer(SCRATCH)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float held[STEPS * kSumShare], slots[LANES];
  const uint shares = LANES / kSumShare, row = group / shares, lane = group % shares * kSumShare;
  const uint parts = parts_of(p.width), steps = (p.width + LANES - 1) / LANES;
  device float* kept = scratch + kept_of(row, p.width);
  device const float* from = x + ulong(row) * p.width;
  float most = -INFINITY, sum = 0.0f;
  for (uint i = index; i < parts; i += LANES) {
    const float other = kept[i];
    most = other > most ? other : most;
  }
  most = fold_max(most, slots, index);
  for (uint done = 0; done < steps; done += STEPS) {
    const uint n = (min(uint(STEPS), steps - done) + AHEAD - 1) / AHEAD * AHEAD;
    if (done > 0) threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint first = index; first < n * kSumShare; first += LANES * READS) {
      float v[READS];
#pragma unroll
      for (uint j = 0; j < READS; ++j) {
        const uint i = first + j * LANES;
        const uint c = (done + i / kSumShare) * LANES + lane + i % kSumShare;
        v[j] = i < n * kSumShare && c < p.width ? from[c] : -INFINITY;
      }
#pragma unroll
      for (uint j = 0; j < READS; ++j)
        if (first + j * LANES < n * kSumShare) held[first + j * LANES] = math_exp(v[j] - most);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < kSumShare) sum = add_steps(held + index, n, sum);
  }
  if (index < kSumShare) kept[parts + lane + index] = sum;
  if (index == 0 && lane == 0) kept[parts + LANES] = most;
}

template <bool log>
kernel void softmax_part(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                         constant RowsParams& p [[buffer(PARAMS)]],
                         device const float* scratch [[buffer(SCRATCH)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[LANES];
  const uint parts = parts_of(p.width), row = group / parts;
  const uint first = group % parts * kRowPart + index;
  const ulong start = ulong(row) * p.width;
  device const float* kept = scratch + kept_of(row, p.width) + parts;
  float v[EACH];
  read_part(x + start, first, p.width, v);
  const float most = kept[LANES], sum = fold_sum(kept[index], slots, index);
  const float log_sum = log ? math_log(sum) : 0.0f;
#pragma unroll
  for (uint j = 0; j < EACH; ++j) {
    const uint c = first + j * LANES;
    const float e = log ? 0.0f : math_exp(v[j] - most);
    if (c < p.width) out[start + c] = finished<log>(v[j], e, most, sum, log_sum);
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
template [[host_name("softmax_long_f32_part")]] [[kernel]] decltype(softmax_part<false>)
    softmax_part<false>;
template [[host_name("log_softmax_long_f32_part")]] [[kernel]] decltype(softmax_part<true>)
    softmax_part<true>;
