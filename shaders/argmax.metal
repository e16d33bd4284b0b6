// argmax: 256 threads a row. Strictly greater replaces, from -3.4e38 at index 0, and of equal
// values the lower index stays: never NaN, whatever the order of the comparisons. Keys decide, so a
// device that flushes subnormals finds the same place.
#include "kernel.h"
#include "order.h"
#include "shared/params/rows.h"

#define LANES 256

kernel void argmax_f32(device const float* x [[buffer(0)]], device u32* out [[buffer(1)]],
                       constant RowsParams& p [[buffer(PARAMS)]],
                       uint row [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
  threadgroup u32 keys[LANES], places[LANES];
  const ulong start = ulong(row) * p.width;
  u32 best = key_of(-3.4e38f), at = 0;
  for (uint c = index; c < p.width; c += LANES) {
    const u32 key = key_of(x[start + c]);
    if (key > best) {
      best = key;
      at = c;
    }
  }
  keys[index] = best;
  places[index] = at;
  for (uint h = LANES / 2; h > 0; h /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < h) {
      const u32 other = keys[index + h];
      const bool wins =
          other > keys[index] || (other == keys[index] && places[index + h] < places[index]);
      if (wins) {
        keys[index] = other;
        places[index] = places[index + h];
      }
    }
  }
  if (index == 0) out[row] = places[0];
}
