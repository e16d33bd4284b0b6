// rope: a thread turns one pair of a row, or copies one value behind the rotary part.
#include "rope.h"

#define THREADS 256
#define ELEMENTS 4

kernel void rope_f32(device const float* x [[buffer(0)]], device const u32* positions [[buffer(1)]],
                     device const float* frequencies [[buffer(2)]], device float* out [[buffer(3)]],
                     constant RopeParams& p [[buffer(PARAMS)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  const uint items = rope_items(p);
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong item = ulong(group) * (THREADS * ELEMENTS) + j * THREADS + index;
    const uint row = uint(item / items);
    if (row >= p.rows) return;
    const ulong start = ulong(row) * p.width;
    const Turned t = turned(x + start, positions + row / p.rows_per_position, frequencies, p,
                            uint(item % items));
    out[start + t.first] = t.u;
    if (t.second != t.first) out[start + t.second] = t.v;
  }
}
