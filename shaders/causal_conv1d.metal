// causal_conv1d: one thread for a few results, products and sums in order of the taps; a second
// launch shifts the state.
#include "kernel.h"
#include "shared/params/causal_conv1d.h"

#define GROUP_THREADS 256
#define THREAD_ELEMENTS 4

// The sequence of a token below offsets[sequences].
static inline uint conv_sequence(device const uint* offsets, uint sequences, uint token) {
  uint lo = 0, hi = sequences;
  while (lo < hi) {
    const uint middle = lo + (hi - lo) / 2;
    if (offsets[middle + 1] > token) hi = middle;
    else lo = middle + 1;
  }
  return lo;
}

kernel void causal_conv1d(device const float* x [[buffer(0)]], device const float* w [[buffer(1)]],
                          device const float* state [[buffer(2)]],
                          device const float* bias [[buffer(4)]],
                          device const uint* offsets [[buffer(5)]], device float* out [[buffer(6)]],
                          constant CausalConv1dParams& p [[buffer(PARAMS)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]]) {
  const ulong all = ulong(p.T) * p.C, kept = p.W - 1;
  ulong i = ulong(group) * (GROUP_THREADS * THREAD_ELEMENTS) + index;
  for (int n = 0; n < THREAD_ELEMENTS && i < all; ++n, i += GROUP_THREADS) {
    const uint token = uint(i / p.C), c = uint(i % p.C);
    if (token >= offsets[p.B]) {
      out[i] = 0.0f;
      continue;
    }
    const uint sequence = conv_sequence(offsets, p.B, token);
    const ulong t = token - offsets[sequence];
    device const float* taps = w + ulong(c) * p.W;
    device const float* old = state + ulong(sequence) * kept * p.C + c;
    device const float* own = x + ulong(offsets[sequence]) * p.C + c;
    float sum = 0.0f;
    for (ulong j = 0; j < p.W; ++j) {
      const ulong row = t + j;  // of the state's rows and then the tokens
      const float z = row < kept ? old[row * p.C] : own[(row - kept) * p.C];
      const float product = taps[j] * z;
      sum = j == 0 ? product : sum + product;
    }
    out[i] = p.has_bias ? sum + bias[c] : sum;
  }
}

// Row i of the state comes from a later one, so none is overwritten before it is read.
kernel void causal_conv1d_state(device const float* x [[buffer(0)]],
                                device float* state [[buffer(2)]],
                                device const uint* offsets [[buffer(5)]],
                                constant CausalConv1dParams& p [[buffer(PARAMS)]],
                                uint group [[threadgroup_position_in_grid]],
                                uint index [[thread_index_in_threadgroup]]) {
  const ulong column = ulong(group) * GROUP_THREADS + index, kept = p.W - 1;
  if (column >= ulong(p.B) * p.C) return;
  const uint sequence = uint(column / p.C), c = uint(column % p.C);
  const ulong first = offsets[sequence], tokens = offsets[sequence + 1] - first;
  device float* own = state + ulong(sequence) * kept * p.C + c;
  for (ulong i = 0; tokens && i < kept; ++i) {
    const ulong row = tokens + i;
    own[i * p.C] = row < kept ? own[row * p.C] : x[(first + row - kept) * p.C + c];
  }
}
