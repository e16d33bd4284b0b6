// route, combine and segment_offsets.
#include "kernel.h"
#include "shared/params/route.h"
#include "shared/params/segments.h"

#define THREADS 256
#define THREAD_ELEMENTS 4

// What stands before a thread's entry among those of its group, and the sum of all.
static inline ulong before_own(threadgroup ulong* slots, ulong own, uint index, thread ulong& all) {
  ulong sum = own;
  for (uint h = 1; h < THREADS; h *= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    slots[index] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index >= h) sum += slots[index - h];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  slots[index] = sum;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  all = slots[THREADS - 1];
  return sum - own;
}

// A group takes one expert after another; each thread walks its stretch of the slots twice: to
// count the slots of earlier experts and of its own, then to place the latter. Expert number
// `experts` has the ids that are none.
kernel void route(device const uint* ids [[buffer(0)]], device uint* rows [[buffer(1)]],
                  device uint* counts [[buffer(2)]], device uint* inverse [[buffer(3)]],
                  constant RouteParams& p [[buffer(PARAMS)]],
                  uint group [[threadgroup_position_in_grid]],
                  uint groups [[threadgroups_per_grid]],
                  uint index [[thread_index_in_threadgroup]]) {
  threadgroup ulong slots[THREADS];
  const ulong stretch = (ulong(p.slots) + THREADS - 1) / THREADS;
  const uint begin = uint(min(index * stretch, ulong(p.slots)));
  const uint end = uint(min((index + 1) * stretch, ulong(p.slots)));
  for (ulong expert = group; expert <= p.experts; expert += groups) {
    ulong earlier = 0, own = 0, of_earlier, of_own;
    for (uint s = begin; s < end; ++s) {
      const uint id = min(ids[s], p.experts);
      earlier += id < expert;
      own += id == expert;
    }
    before_own(slots, earlier, index, of_earlier);
    ulong place = before_own(slots, own, index, of_own) + of_earlier;
    if (index == 0 && expert < p.experts) counts[expert] = uint(of_own);
    for (uint s = begin; own && s < end; ++s) {
      if (min(ids[s], p.experts) != expert) continue;
      rows[place] = s / p.k;
      inverse[s] = uint(place);
      ++place;
    }
  }
}

// Products and sums in order of the choices.
kernel void combine(device const float* y [[buffer(0)]], device const uint* inverse [[buffer(1)]],
                    device const float* weight [[buffer(2)]], device float* out [[buffer(3)]],
                    constant CombineParams& p [[buffer(PARAMS)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  const ulong all = ulong(p.T) * p.N;
  ulong i = ulong(group) * (THREADS * THREAD_ELEMENTS) + index;
  for (int n = 0; n < THREAD_ELEMENTS && i < all; ++n, i += THREADS) {
    const ulong first = i / p.N * p.k, c = i % p.N;
    float sum = 0.0f;
    for (uint j = 0; j < p.k; ++j) {
      const uint row = inverse[first + j];
      const float product = weight[first + j] * (row < p.T * p.k ? y[ulong(row) * p.N + c] : 0.0f);
      sum = j == 0 ? product : sum + product;
    }
    out[i] = sum;
  }
}

// One group. The sum up to an entry, clamped, is what clamping at every step gives.
kernel void segment_offsets(device const uint* counts [[buffer(0)]],
                            device uint* offsets [[buffer(1)]],
                            constant SegmentsParams& p [[buffer(PARAMS)]],
                            uint index [[thread_index_in_threadgroup]]) {
  threadgroup ulong slots[THREADS];
  const ulong stretch = (ulong(p.segments) + THREADS - 1) / THREADS;
  const uint begin = uint(min(index * stretch, ulong(p.segments)));
  const uint end = uint(min((index + 1) * stretch, ulong(p.segments)));
  ulong own = 0, all;
  for (uint e = begin; e < end; ++e) own += counts[e];
  ulong at = before_own(slots, own, index, all);
  if (index == 0) offsets[0] = 0;
  for (uint e = begin; e < end; ++e) {
    at += counts[e];
    offsets[e + 1] = uint(min(at, ulong(p.total)));
  }
}
