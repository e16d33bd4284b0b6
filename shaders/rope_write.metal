// rope_write: what stands between a step's projections and its attention, in one launch. rope of q;
// rope of k, rounded to the type of its state and written where ids say; v the same without rope.
// The bits are those of rope, cast and scatter_rows. A thread has one item: a step has few.
#include "rope.h"
#include "shared/params/rope_write.h"

#define THREADS 256

// Whether a row is written: its id is in the state, and no row behind it has the same.
static inline bool wins(device const u32* ids, uint row, uint n, uint capacity) {
  const u32 id = ids[row];
  bool last = id < capacity;
  for (uint later = row + 1; later < n; ++later) last = last && ids[later] != id;
  return last;
}

template <class T>
kernel void rope_write(
    device const float* q [[buffer(0)]], device const u32* q_positions [[buffer(1)]],
    device const float* q_frequencies [[buffer(2)]], device float* q_out [[buffer(3)]],
    device const float* k [[buffer(4)]], device const u32* k_positions [[buffer(5)]],
    device const float* k_frequencies [[buffer(6)]], device T* k_state [[buffer(7)]],
    device const u32* k_ids [[buffer(8)]], device const float* v [[buffer(9)]],
    device T* v_state [[buffer(10)]], device const u32* v_ids [[buffer(11)]],
    constant RopeWriteParams& p [[buffer(PARAMS)]], uint group [[threadgroup_position_in_grid]],
    uint index [[thread_index_in_threadgroup]]) {
  if (group < p.q_groups) {
    const uint item = group * THREADS + index, items = rope_items(p.q), row = item / items;
    if (row >= p.q.rows) return;
    const uint start = row * p.q.width;
    const Turned t = turned(q + start, q_positions + row / p.q.rows_per_position, q_frequencies,
                            p.q, item % items);
    q_out[start + t.first] = t.u;
    if (t.second != t.first) q_out[start + t.second] = t.v;
  } else if (group < p.q_groups + p.k_groups) {
    const uint item = (group - p.q_groups) * THREADS + index, items = rope_items(p.k);
    const uint row = item / items, to = row / p.k_heads;
    if (row >= p.k.rows) return;
    const bool last = wins(k_ids, to, p.n, p.k_capacity);
    const Turned t = turned(k + row * p.k.width, k_positions + row / p.k.rows_per_position,
                            k_frequencies, p.k, item % items);
    if (!last) return;
    const ulong start = (ulong(k_ids[to]) * p.k_heads + row % p.k_heads) * p.k.width;
    k_state[start + t.first] = narrow<T>(t.u);
    if (t.second != t.first) k_state[start + t.second] = narrow<T>(t.v);
  } else {
    const uint i = (group - p.q_groups - p.k_groups) * THREADS + index, row = i / p.v_width;
    if (row >= p.n) return;
    const float x = v[i];
    if (wins(v_ids, row, p.n, p.v_capacity))
      v_state[ulong(v_ids[row]) * p.v_width + i % p.v_width] = narrow<T>(x);
  }
}

template [[host_name("rope_write_f32")]] [[kernel]] decltype(rope_write<float>) rope_write<float>;
template [[host_name("rope_write_f16")]] [[kernel]] decltype(rope_write<half>) rope_write<half>;
