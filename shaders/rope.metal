// rope: a thread turns one pair of a row, or copies one value behind the rotary part.
#include "kernel.h"
#include "float_math.h"
#include "shared/params/rope.h"

#define THREADS 256
#define ELEMENTS 4

kernel void rope_f32(device const float* x [[buffer(0)]], device const u32* positions [[buffer(1)]],
                     device const float* frequencies [[buffer(2)]], device float* out [[buffer(3)]],
                     constant RopeParams& p [[buffer(PARAMS)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  const uint pairs = p.rotary_dim / 2, items = p.width - pairs;
  const uint partner = p.halves ? pairs : 1, step = p.halves ? 1 : 2;
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong item = ulong(group) * (THREADS * ELEMENTS) + j * THREADS + index;
    const uint row = uint(item / items), k = uint(item % items);
    if (row >= p.rows) return;
    const ulong start = ulong(row) * p.width;
    if (k >= pairs) {
      out[start + pairs + k] = x[start + pairs + k];
      continue;
    }
    const float theta = float(positions[row / p.rows_per_position]) * frequencies[k];
    const float c = math_cos(theta), s = math_sin(theta);
    const float u = x[start + k * step], v = x[start + k * step + partner];
    out[start + k * step] = u * c - v * s;
    out[start + k * step + partner] = u * s + v * c;
  }
}
