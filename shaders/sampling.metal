// Draws, penalties and the policies of rows. All but the penalties' values are decided by integers
// or by sums in the contract's order, so tokens are the CPU's.
#include "kernel.h"
#include "order.h"
#include "shared/params/penalties.h"
#include "shared/params/row_policy.h"
#include "shared/params/rows.h"

#define THREADS 256
#define ELEMENTS 4
#define BLOCK 256  // entries whose running sum is one chain

static inline ulong element(uint group, uint index, uint j) {
  return ulong(group) * (THREADS * ELEMENTS) + j * THREADS + index;
}
// Above 0 and finite: the row is drawn, not the argmax taken.
static inline bool draws_row(float factor) {
  return is_inside(factor, INFINITY);
}

// ---------------------------------------------------------------- draws

// Running sums in blocks of 256, the totals of the blocks added to a carry; the smallest index
// whose running sum exceeds draw * total, or the last index. `blocks` has the total of each block,
// then the carry before it. Where no weight is below zero, only blocks that pass the target are
// walked.
static inline u32 drawn(device const float* w, uint width, float draw, device float* blocks,
                        threadgroup float* shared, threadgroup atomic_uint* found, uint index) {
  draw = draw > 0.0f ? draw : 0.0f;  // NaN too
  draw = draw < 0x1.fffffep-1f ? draw : 0x1.fffffep-1f;
  const uint n = (width + BLOCK - 1) / BLOCK;
  for (uint b = index; b < n; b += THREADS) {
    float s = 0.0f;
    const uint end = min(width, (b + 1) * BLOCK);
    for (uint i = b * BLOCK; i < end; ++i) s = s + w[i];
    blocks[b] = s;
  }
  threadgroup_barrier(mem_flags::mem_device);
  if (index == 0) {
    float carry = 0.0f;
    for (uint b = 0; b < n; ++b) {
      blocks[n + b] = carry;
      carry = carry + blocks[b];
    }
    shared[0] = draw * carry;
    atomic_store_explicit(found, 0u, memory_order_relaxed);
  }
  threadgroup_barrier(mem_flags::mem_device | mem_flags::mem_threadgroup);
  const float target = shared[0];
  for (uint b = index; b < n; b += THREADS) {
    const float carry = blocks[n + b];
    float s = 0.0f;
    const uint begin = b * BLOCK, end = min(width, (b + 1) * BLOCK);
    bool negative = false;
    if (!(carry + blocks[b] > target))
      for (uint i = begin; i < end; ++i) negative = negative || w[i] < 0.0f;
    if (!(carry + blocks[b] > target) && !negative) continue;
    for (uint i = begin; i < end; ++i) {
      s = s + w[i];
      if (carry + s > target) {
        atomic_fetch_max_explicit(found, ~i, memory_order_relaxed);
        break;
      }
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const u32 first = ~atomic_load_explicit(found, memory_order_relaxed);
  return first == 0xffffffffu ? width - 1 : first;
}

kernel void sample_categorical_f32(device const float* weights [[buffer(0)]],
                                   device const float* draws [[buffer(1)]],
                                   device u32* out [[buffer(2)]],
                                   constant RowsParams& p [[buffer(PARAMS)]],
                                   device float* scratch [[buffer(SCRATCH)]],
                                   uint row [[threadgroup_position_in_grid]],
                                   uint index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[1];
  threadgroup atomic_uint found[1];
  const uint blocks = (p.width + BLOCK - 1) / BLOCK;
  const u32 token = drawn(weights + ulong(row) * p.width, p.width, draws[row],
                          scratch + ulong(row) * 2 * blocks, shared, found, index);
  if (index == 0) out[row] = token;
}

// A row whose factor draws nothing takes its best and ignores its draw.
kernel void row_draw(device const float* weights [[buffer(0)]],
                     device const float* draws [[buffer(1)]],
                     device const float* factor [[buffer(2)]],
                     device const u32* best [[buffer(3)]], device u32* out [[buffer(4)]],
                     constant RowsParams& p [[buffer(PARAMS)]],
                     device float* scratch [[buffer(SCRATCH)]],
                     uint row [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float shared[1];
  threadgroup atomic_uint found[1];
  const uint blocks = (p.width + BLOCK - 1) / BLOCK;
  u32 token = best[row];
  if (draws_row(factor[row]))
    token = drawn(weights + ulong(row) * p.width, p.width, draws[row],
                  scratch + ulong(row) * 2 * blocks, shared, found, index);
  if (index == 0) out[row] = token;
}

// ---------------------------------------------------------------- penalties

kernel void penalty_clear(device u32* counts [[buffer(0)]],
                          constant PenaltyParams& p [[buffer(PARAMS)]],
                          uint i [[thread_position_in_grid]]) {
  if (i < p.vocab) counts[i] = 0;
}

kernel void penalty_count(device atomic_uint* counts [[buffer(0)]],
                          device const u32* history [[buffer(1)]],
                          constant PenaltyParams& p [[buffer(PARAMS)]],
                          constant u32* scalars [[buffer(SCALARS)]],
                          uint i [[thread_position_in_grid]]) {
  if (i >= min(scalars[0], p.history) || history[i] >= p.vocab) return;
  atomic_fetch_add_explicit(&counts[history[i]], 1u, memory_order_relaxed);
}

static inline float penalised(float l, u32 count, bool repeats, float rep, float pres, float freq) {
  if (repeats) l = l > 0.0f ? l / rep : l * rep;
  return (l - pres) - freq * float(count);
}

kernel void penalty_apply(device const float* logits [[buffer(0)]],
                          device const u32* counts [[buffer(1)]], device float* out [[buffer(2)]],
                          constant PenaltyParams& p [[buffer(PARAMS)]],
                          constant u32* scalars [[buffer(SCALARS)]],
                          uint i [[thread_position_in_grid]]) {
  if (i >= p.vocab) return;
  const float rep = as_type<float>(scalars[0]), pres = as_type<float>(scalars[1]);
  const float freq = as_type<float>(scalars[2]);
  const bool repeats = !is_zero(rep) && rep != 1.0f;
  out[i] = counts[i] ? penalised(logits[i], counts[i], repeats, rep, pres, freq) : logits[i];
}

kernel void row_penalty_count(device atomic_uint* counts [[buffer(0)]],
                              device const u32* history [[buffer(1)]],
                              device const u32* filled [[buffer(2)]],
                              constant RowPolicyParams& p [[buffer(PARAMS)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= ulong(p.rows) * p.history) return;
    const uint row = uint(i / p.history), at = uint(i % p.history);
    if (at >= filled[row] || history[i] >= p.vocab) continue;
    atomic_fetch_add_explicit(&counts[ulong(row) * p.vocab + history[i]], 1u,
                              memory_order_relaxed);
  }
}

static inline float finite_or(float x, float otherwise) {
  return x - x == 0.0f ? x : otherwise;
}

kernel void row_penalty_apply(device const float* logits [[buffer(0)]],
                              device const u32* counts [[buffer(1)]],
                              device const float* repetition [[buffer(2)]],
                              device const float* presence [[buffer(3)]],
                              device const float* frequency [[buffer(4)]],
                              device float* out [[buffer(5)]],
                              constant RowPolicyParams& p [[buffer(PARAMS)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= ulong(p.rows) * p.vocab) return;
    const uint row = uint(i / p.vocab);
    const float given = finite_or(repetition[row], 0.0f);
    // Over 1 and times 1 change no bit.
    const float rep = is_inside(given, INFINITY) ? given : 1.0f;
    out[i] = counts[i] ? penalised(logits[i], counts[i], true, rep, finite_or(presence[row], 0.0f),
                                   finite_or(frequency[row], 0.0f))
                       : logits[i];
  }
}

// ---------------------------------------------------------------- rows

kernel void row_scale(device const float* x [[buffer(0)]], device const float* factor [[buffer(1)]],
                      device float* out [[buffer(2)]],
                      constant RowPolicyParams& p [[buffer(PARAMS)]],
                      uint group [[threadgroup_position_in_grid]],
                      uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= ulong(p.rows) * p.vocab) return;
    const float f = factor[i / p.vocab];
    out[i] = x[i] * (draws_row(f) ? f : 1.0f);
  }
}

// Slots of one token are added in their order.
kernel void row_bias(device const float* logits [[buffer(0)]], device const u32* ids [[buffer(1)]],
                     device const float* values [[buffer(2)]], device float* out [[buffer(3)]],
                     constant RowPolicyParams& p [[buffer(PARAMS)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= ulong(p.rows) * p.vocab) return;
    const ulong row = i / p.vocab;
    float l = logits[i];
    for (uint s = 0; s < p.slots; ++s)
      if (ids[row * p.slots + s] == uint(i % p.vocab)) l = l + values[row * p.slots + s];
    out[i] = l;
  }
}
