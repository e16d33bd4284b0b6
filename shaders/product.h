// What the matrix products share: their operands, the rows that a group owns, and rows of x
// widened, rounded and staged in threadgroup memory.
#pragma once
#include "kernel.h"
#include "shared/params/product.h"
#include "shared/product_tiles.h"

// S is a source of weights (weights.h). What a product lacks is bound to any operand and not read.
// segments: the experts' offsets of a grouped product.
#define PRODUCT_OPERANDS                                                             \
  device const X *x [[buffer(0)]], device const typename S::Stored *w [[buffer(1)]], \
      device const typename S::Plane *scales [[buffer(2)]],                          \
      device const typename S::Plane *offsets [[buffer(3)]],                         \
      device const float *bias [[buffer(4)]], device float *out [[buffer(5)]],       \
      device const uint *segments [[buffer(6)]], constant ProductParams &p [[buffer(PARAMS)]]
#define PRODUCT_PLACE \
  uint3 group [[threadgroup_position_in_grid]], uint index [[thread_index_in_threadgroup]]

// Rows m0 .. m0 + rows - 1 of x, all of one expert; none where rows is 0. Padding rows belong to
// no expert and come out as zero.
struct Part {
  uint m0, rows, expert;
  bool padding;
};

// The part of a group's rows, of at most `most`. Experts are cut into parts each on its own, then
// the padding rows.
template <bool Grouped>
static inline Part part_of(constant ProductParams& p, device const uint* segments, uint at,
                           uint most) {
  Part part = {0, 0, 0, false};
  if (!Grouped) {
    part.m0 = at * most;
    part.rows = part.m0 < p.M ? min(most, p.M - part.m0) : 0;
    return part;
  }
  for (uint e = 0; e <= p.experts; ++e) {
    const uint begin = segments[e], end = e < p.experts ? segments[e + 1] : p.M;
    const uint parts = (end - begin + most - 1) / most;
    if (at < parts) {
      part.m0 = begin + at * most;
      part.rows = min(most, end - part.m0);
      part.expert = e;
      part.padding = e == p.experts;
      return part;
    }
    at -= parts;
  }
  return part;
}

// Columns n0 .. n0 + columns - 1 of the part's rows.
static inline void put_zeros(const Part part, device float* out, uint N, uint n0, uint columns,
                             uint index, uint threads) {
  for (uint r = 0; r < part.rows; ++r)
    for (uint n = n0 + index; n < min(n0 + columns, N); n += threads)
      out[ulong(part.m0 + r) * N + n] = 0.0f;
}

static inline float as_bf16(float v) {
  if (v != v) return as_type<float>(0x7fc00000u);
  const uint whole = as_type<uint>(v), odd = whole >> 16 & 1;
  return as_type<float>((whole + 0x7fff + odd) & 0xffff0000u);
}
// ProductParams::activations of 0, 1 and 2.
static inline float rounded(float v, uint to) {
  return to == 0 ? v : to == 1 ? float(half(v)) : as_bf16(v);
}

// What stands for x where k passes its end: times the +0 of a weight there it leaves every sum as
// it is, the sign of a zero included.
#define BEYOND_X -0.0f
