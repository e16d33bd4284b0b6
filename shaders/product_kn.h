// Products with a weight [K, N], order chain: a thread takes C columns by R rows and goes through k
// in ascending order, so neighbouring threads read neighbouring weights. x is staged in threadgroup
// memory, widened and rounded, as [k][R].
#pragma once
#include "weights.h"

#define KN_FLOATS 1024  // of x at a time
#define KN_AHEAD 4      // values of k whose weights are on their way at once

template <uint R, uint C>
struct Chains {
  float v[R][C];
};

// The R values of x at one k by the C weights there.
template <uint R, uint C>
static inline void add_one(thread Chains<R, C>& a, threadgroup const float* x,
                           thread const float* w) {
#pragma unroll
  for (uint r = 0; r < R; ++r)
#pragma unroll
    for (uint c = 0; c < C; ++c) a.v[r][c] = fma(x[r], w[c], a.v[r][c]);
}

template <class X, class S, uint R, uint C, bool Grouped>
kernel GROUPS(kKnThreads, 16) void kn_rows(PRODUCT_OPERANDS, PRODUCT_PLACE) {
  threadgroup float staged[KN_FLOATS];
  const Part part = part_of<Grouped>(p, segments, group.x, R);
  const uint n0 = group.y * kKnThreads * C, K = p.K, N = p.N;
  if (part.rows == 0) return;
  if (part.padding) return put_zeros(part, out, N, n0, kKnThreads * C, index, kKnThreads);

  const S source = S::of(w, scales, offsets, p);
  ulong at[C];  // flat indices of this thread's columns at k0 + k
  Chains<R, C> a;
#pragma unroll
  for (uint c = 0; c < C; ++c) {
    at[c] = ulong(part.expert) * K * N + min(n0 + index + c * kKnThreads, N - 1);
#pragma unroll
    for (uint r = 0; r < R; ++r) a.v[r][c] = 0.0f;
  }

  const uint most = KN_FLOATS / R;
  device const X* rows = x + ulong(part.m0) * K;
  for (uint k0 = 0; k0 < K; k0 += most) {
    const uint depth = min(most, K - k0);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = 0; r < R; ++r)
      for (uint k = index; k < depth; k += kKnThreads)
        staged[k * R + r] =
            r < part.rows ? rounded(widen(rows[ulong(r) * K + k0 + k]), p.activations) : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    uint k = 0;
    for (; k + KN_AHEAD <= depth; k += KN_AHEAD) {
      float v[KN_AHEAD][C];
#pragma unroll
      for (uint i = 0; i < KN_AHEAD; ++i)
#pragma unroll
        for (uint c = 0; c < C; ++c) {
          v[i][c] = source.at(at[c]);
          at[c] += N;
        }
#pragma unroll
      for (uint i = 0; i < KN_AHEAD; ++i) add_one<R, C>(a, staged + (k + i) * R, v[i]);
    }
    for (; k < depth; ++k) {
      float v[C];
#pragma unroll
      for (uint c = 0; c < C; ++c) {
        v[c] = source.at(at[c]);
        at[c] += N;
      }
      add_one<R, C>(a, staged + k * R, v);
    }
  }
#pragma unroll
  for (uint c = 0; c < C; ++c) {
    const uint n = n0 + index + c * kKnThreads;
    if (n >= N) continue;
    const float last = p.bias ? bias[ulong(part.expert) * N + n] : 0.0f;
#pragma unroll
    for (uint r = 0; r < R; ++r)
      if (r < part.rows) out[ulong(part.m0 + r) * N + n] = p.bias ? a.v[r][c] + last : a.v[r][c];
  }
}
