// argmax: 256 threads a row, or of long rows a group each part and then one for what they found.
// Strictly greater replaces, from -3.4e38 at index 0, and of equal values the lower index stays:
// never NaN, whatever the order of the comparisons. Keys decide, so a device that flushes
// subnormals finds the same place.
#include "kernel.h"
#include "order.h"
#include "shared/params/rows.h"
#include "shared/row_parts.h"

#define LANES 256
#define EACH (kRowPart / LANES)  // elements of a part that a thread has

struct Best {
  u32 key, at;
};
static inline Best lowest() {
  return {key_of(-3.4e38f), 0};
}
static inline Best better(Best a, Best b) {
  return b.key > a.key || (b.key == a.key && b.at < a.at) ? b : a;
}

// Of all threads, for the first.
static inline Best fold_best(Best best, threadgroup u32* keys, threadgroup u32* places,
                             uint index) {
  keys[index] = best.key;
  places[index] = best.at;
  for (uint h = LANES / 2; h > 0; h /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < h) {
      best = better(best, {keys[index + h], places[index + h]});
      keys[index] = best.key;
      places[index] = best.at;
    }
  }
  return best;
}

kernel void argmax_f32(device const float* x [[buffer(0)]], device u32* out [[buffer(1)]],
                       constant RowsParams& p [[buffer(PARAMS)]],
                       uint row [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
  threadgroup u32 keys[LANES], places[LANES];
  const ulong start = ulong(row) * p.width;
  Best best = lowest();
  for (uint c = index; c < p.width; c += LANES) best = better(best, {key_of(x[start + c]), c});
  best = fold_best(best, keys, places, index);
  if (index == 0) out[row] = best.at;
}

// What each part found: the keys of all parts of all rows, then their places.
kernel void argmax_f32_part(device const float* x [[buffer(0)]],
                            constant RowsParams& p [[buffer(PARAMS)]],
                            device u32* found [[buffer(SCRATCH)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint index [[thread_index_in_threadgroup]]) {
  threadgroup u32 keys[LANES], places[LANES];
  const uint parts = (p.width + kRowPart - 1) / kRowPart;
  const uint row = group / parts, first = group % parts * kRowPart + index;
  const ulong start = ulong(row) * p.width;
  float v[EACH];  // all reads under way before the first comparison
#pragma unroll
  for (uint j = 0; j < EACH; ++j)
    v[j] = first + j * LANES < p.width ? x[start + first + j * LANES] : -INFINITY;
  Best best = lowest();
#pragma unroll
  for (uint j = 0; j < EACH; ++j) best = better(best, {key_of(v[j]), first + j * LANES});
  best = fold_best(best, keys, places, index);
  if (index != 0) return;
  found[group] = best.key;
  found[p.rows * parts + group] = best.at;
}

kernel void argmax_f32_last(device u32* out [[buffer(1)]],
                            constant RowsParams& p [[buffer(PARAMS)]],
                            device const u32* found [[buffer(SCRATCH)]],
                            uint row [[threadgroup_position_in_grid]],
                            uint index [[thread_index_in_threadgroup]]) {
  threadgroup u32 keys[LANES], places[LANES];
  const uint parts = (p.width + kRowPart - 1) / kRowPart;
  Best best = lowest();
  for (uint i = row * parts + index; i < (row + 1) * parts; i += LANES)
    best = better(best, {found[i], found[p.rows * parts + i]});
  best = fold_best(best, keys, places, index);
  if (index == 0) out[row] = best.at;
}
