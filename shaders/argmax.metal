// argmax: 256 threads a row. Strictly greater replaces, from -3.4e38 at index 0, and of equal
// values the lower index stays: never NaN, whatever the order of the comparisons.
#include "kernel.h"
#include "shared/params/rows.h"

#define LANES 256

kernel void argmax_f32(device const float* x [[buffer(0)]], device u32* out [[buffer(1)]],
                       constant RowsParams& p [[buffer(PARAMS)]],
                       uint row [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
  threadgroup float values[LANES];
  threadgroup u32 places[LANES];
  const ulong start = ulong(row) * p.width;
  float best = -3.4e38f;
  u32 at = 0;
  for (uint c = index; c < p.width; c += LANES)
    if (x[start + c] > best) {
      best = x[start + c];
      at = c;
    }
  values[index] = best;
  places[index] = at;
  for (uint h = LANES / 2; h > 0; h /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < h) {
      const float other = values[index + h];
      const bool wins = other > values[index] ||
                        (other == values[index] && places[index + h] < places[index]);
      if (wins) {
        values[index] = other;
        places[index] = places[index + h];
      }
    }
  }
  if (index == 0) out[row] = places[0];
}
