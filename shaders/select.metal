// The masks and top_k: selections in the order (value descending, index ascending), where -0 equals
// +0 and NaN comes last. A group a row. An entry is a pair: a key that grows with the value, and
// the complement of the index, which grows as the index falls; no two entries are equal. The n-th
// entry is found by digits of eight bits from the top, so nothing depends on who counts first.
#include "kernel.h"
#include "order.h"
#include "shared/params/row_policy.h"
#include "shared/params/rows.h"

#define THREADS 256
#define BATCH 1024  // entries sorted at once
#define FIRST_BATCH 128

struct Entry {
  u32 key, place;
};

static inline Entry entry_of(float x, u32 index) {
  Entry e;
  e.key = key_of(x);
  e.place = ~index;
  return e;
}
static inline bool reaches(Entry e, Entry cut) {
  return e.key > cut.key || (e.key == cut.key && e.place >= cut.place);
}
// Above every entry.
static inline Entry above_all() {
  Entry e;
  e.key = e.place = 0xffffffffu;
  return e;
}

// Digit 0 .. 7 of an entry, and whether its digits before that one are those of `prefix`.
static inline u32 digit_of(Entry e, uint digit) {
  return (digit < 4 ? e.key >> (24 - 8 * digit) : e.place >> (56 - 8 * digit)) & 255;
}
static inline bool begins_with(Entry e, Entry prefix, uint digit) {
  if (digit == 0) return true;
  if (digit <= 4) return e.key >> (32 - 8 * digit) == prefix.key >> (32 - 8 * digit);
  return e.key == prefix.key &&
         e.place >> (64 - 8 * digit) == prefix.place >> (64 - 8 * digit);
}

// The n-th entry of a row, 1 <= n <= width, or what separates it from the entry behind it: n
// entries reach the result. Every thread of the group calls it and gets it.
static inline Entry nth(device const float* x, uint width, uint n, threadgroup atomic_uint* counts,
                        threadgroup uint* shared, uint index) {
  Entry cut;
  cut.key = cut.place = 0;
  for (uint digit = 0; digit < 8; ++digit) {
    atomic_store_explicit(&counts[index], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = index; i < width; i += THREADS) {
      const Entry e = entry_of(x[i], i);
      if (begins_with(e, cut, digit))
        atomic_fetch_add_explicit(&counts[digit_of(e, digit)], 1u, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index == 0) {
      uint left = n, d = 255, here = 0;
      for (;; --d) {
        here = atomic_load_explicit(&counts[d], memory_order_relaxed);
        if (here >= left || d == 0) break;
        left -= here;
      }
      shared[0] = d;
      shared[1] = left;
      shared[2] = here;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    const uint d = shared[0], here = shared[2];
    n = shared[1];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (digit < 4) cut.key |= d << (24 - 8 * digit);
    else cut.place |= d << (56 - 8 * digit);
    if (here == n) break;  // all that begin so are taken
  }
  return cut;
}

// Entries that reach `cut` and not `before`, in their order; there are at most BATCH of them, and
// behind them come pairs below every entry, up to a power of two.
static inline void sorted_batch(device const float* x, uint width, Entry cut, Entry before,
                                uint size, threadgroup u32* keys, threadgroup u32* places,
                                threadgroup atomic_uint* counts, uint index) {
  for (uint i = index; i < size; i += THREADS) keys[i] = places[i] = 0;
  if (index == 0) atomic_store_explicit(&counts[0], 0u, memory_order_relaxed);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = index; i < width; i += THREADS) {
    const Entry e = entry_of(x[i], i);
    if (!reaches(e, cut) || reaches(e, before)) continue;
    const uint at = atomic_fetch_add_explicit(&counts[0], 1u, memory_order_relaxed);
    keys[at] = e.key;
    places[at] = e.place;
  }
  for (uint run = 2; run <= size; run *= 2)
    for (uint step = run / 2; step > 0; step /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      for (uint i = index; i < size / 2; i += THREADS) {
        const uint lo = i / step * 2 * step + i % step, hi = lo + step;
        Entry a, b;
        a.key = keys[lo], a.place = places[lo];
        b.key = keys[hi], b.place = places[hi];
        const bool descending = (lo & run) == 0;
        if (reaches(b, a) == descending) {
          keys[lo] = b.key, places[lo] = b.place;
          keys[hi] = a.key, places[hi] = a.place;
        }
      }
    }
  threadgroup_barrier(mem_flags::mem_threadgroup);
}

static inline void write_mask(device const float* x, device float* out, uint width, Entry cut,
                              uint index) {
  for (uint i = index; i < width; i += THREADS)
    out[i] = reaches(entry_of(x[i], i), cut) ? x[i] : 0.0f;
}

// ---------------------------------------------------------------- by number

kernel void top_k_mask_f32(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                           constant RowsParams& p [[buffer(PARAMS)]],
                           uint row [[threadgroup_position_in_grid]],
                           uint index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint counts[THREADS];
  threadgroup uint shared[3];
  const ulong start = ulong(row) * p.width;
  const Entry cut = nth(x + start, p.width, p.k, counts, shared, index);
  write_mask(x + start, out + start, p.width, cut, index);
}

// A k of 0, or of the vocabulary or more, keeps the row.
kernel void row_top_k_mask(device const float* x [[buffer(0)]], device const u32* k [[buffer(1)]],
                           device float* out [[buffer(2)]],
                           constant RowPolicyParams& p [[buffer(PARAMS)]],
                           uint row [[threadgroup_position_in_grid]],
                           uint index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint counts[THREADS];
  threadgroup uint shared[3];
  const ulong start = ulong(row) * p.vocab;
  Entry cut;
  cut.key = cut.place = 0;
  if (k[row] != 0 && k[row] < p.vocab)
    cut = nth(x + start, p.vocab, k[row], counts, shared, index);
  write_mask(x + start, out + start, p.vocab, cut, index);
}

kernel void top_k_f32(device const float* x [[buffer(0)]], device float* values [[buffer(1)]],
                      device u32* indices [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                      uint row [[threadgroup_position_in_grid]],
                      uint index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint counts[THREADS];
  threadgroup uint shared[3];
  threadgroup u32 keys[BATCH], places[BATCH];
  device const float* from = x + ulong(row) * p.width;
  const ulong to = ulong(row) * p.k;
  Entry before = above_all();
  for (uint taken = 0; taken < p.k;) {
    const uint size = p.k <= FIRST_BATCH ? FIRST_BATCH : BATCH, n = min(size, p.k - taken);
    const Entry cut = nth(from, p.width, taken + n, counts, shared, index);
    sorted_batch(from, p.width, cut, before, size, keys, places, counts, index);
    for (uint i = index; i < n; i += THREADS) {
      const u32 at = ~places[i];
      values[to + taken + i] = from[at];
      indices[to + taken + i] = at;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    before = cut;
    taken += n;
  }
}

// ---------------------------------------------------------------- by sum

// The 128-lane sum of CONTRACT 23.3: lane i mod 128, then lane i takes lane i + h, h = 64, ..., 1.
static inline float total128(device const float* x, uint width, threadgroup float* lanes,
                             uint index) {
  float a = 0.0f;
  for (uint i = index; index < 128 && i < width; i += 128) a = a + x[i];
  if (index < 128) lanes[index] = a;
  for (uint h = 64; h > 0; h /= 2) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (index < h) lanes[index] = lanes[index] + lanes[index + h];
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  return lanes[0];
}

// Takes entries while their sum, added one after another, is below p * total, `most` at most. The
// last one taken is the cut; above_all() where none is. A p that is subnormal takes one.
static inline Entry nucleus(device const float* x, uint width, float p, float total, uint most,
                            threadgroup u32* keys, threadgroup u32* places,
                            threadgroup atomic_uint* counts, threadgroup uint* shared,
                            uint index) {
  Entry before = above_all(), last = above_all();
  const float target = p * total;
  if (!is_product_above_zero(p, total)) return last;
  float sum = 0.0f;
  for (uint taken = 0; taken < most && (taken == 0 || sum < target);) {
    const uint size = taken == 0 ? FIRST_BATCH : BATCH, n = min(size, most - taken);
    const Entry cut = nth(x, width, taken + n, counts, shared, index);
    sorted_batch(x, width, cut, before, size, keys, places, counts, index);
    if (index == 0) {
      uint i = 0;
      for (; i < n && (taken + i == 0 || sum < target); ++i) sum = sum + x[~places[i]];
      shared[0] = as_type<uint>(sum);
      shared[1] = i;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    sum = as_type<float>(shared[0]);
    last.key = keys[shared[1] - 1];
    last.place = places[shared[1] - 1];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    before = cut;
    taken += n;
  }
  return last;
}

kernel void top_p_mask_f32(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                           constant RowsParams& p [[buffer(PARAMS)]],
                           uint row [[threadgroup_position_in_grid]],
                           uint index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint counts[THREADS];
  threadgroup uint shared[3];
  threadgroup u32 keys[BATCH], places[BATCH];
  threadgroup float lanes[128];
  device const float* from = x + ulong(row) * p.width;
  const float total = total128(from, p.width, lanes, index);
  const uint most = p.exact ? p.width : min(p.width, 128u);
  const Entry cut =
      nucleus(from, p.width, p.p, total, most, keys, places, counts, shared, index);
  write_mask(from, out + ulong(row) * p.width, p.width, cut, index);
}

// A p outside (0, 1) keeps the row.
kernel void row_top_p_mask(device const float* x [[buffer(0)]], device const float* p [[buffer(1)]],
                           device float* out [[buffer(2)]],
                           constant RowPolicyParams& policy [[buffer(PARAMS)]],
                           uint row [[threadgroup_position_in_grid]],
                           uint index [[thread_index_in_threadgroup]]) {
  threadgroup atomic_uint counts[THREADS];
  threadgroup uint shared[3];
  threadgroup u32 keys[BATCH], places[BATCH];
  threadgroup float lanes[128];
  const uint width = policy.vocab;
  device const float* from = x + ulong(row) * width;
  Entry cut;
  cut.key = cut.place = 0;
  if (is_inside(p[row], 1.0f)) {
    const float total = total128(from, width, lanes, index);
    cut = nucleus(from, width, p[row], total, width, keys, places, counts, shared, index);
  }
  write_mask(from, out + ulong(row) * width, width, cut, index);
}
