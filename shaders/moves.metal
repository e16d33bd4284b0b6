// What only moves values: copy, contiguous, concat, take, the gathers and scatter_rows. Kernels of
// one name serve every dtype of a size. A thread has four elements, a group apart.
#include "kernel.h"
#include "shared/params/concat.h"
#include "shared/params/contiguous.h"
#include "shared/params/copy.h"
#include "shared/params/gather_rows.h"
#include "shared/params/rows.h"
#include "shared/params/scatter_rows.h"

#define THREADS 256
#define ELEMENTS 4
#define AXES 8

static inline ulong element(uint group, uint index, uint j) {
  return ulong(group) * (THREADS * ELEMENTS) + j * THREADS + index;
}

// Elements of the size that the operands are aligned to.
template <class T>
kernel void copy_elements(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                          constant CopyParams& p [[buffer(PARAMS)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]]) {
  const ulong n = ((ulong(p.hi) << 32) + p.lo) / sizeof(T);
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i < n) out[i] = x[i];
  }
}

// Index -> coordinates -> strides. Unused axes of the parameters have extent 1.
template <class T>
kernel void contiguous(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                       constant ContiguousParams& p [[buffer(PARAMS)]],
                       uint group [[threadgroup_position_in_grid]],
                       uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= p.n) return;
    uint left = uint(i);
    ulong from = 0;
    for (uint axis = p.rank; axis-- > 0;) {
      from += ulong(left % p.shape[axis]) * p.strides[axis];
      left /= p.shape[axis];
    }
    out[i] = x[from];
  }
}

// One operand to where it stands in the result; a launch an operand.
template <class T>
kernel void concat(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                   constant ConcatPart& p [[buffer(PARAMS)]],
                   uint group [[threadgroup_position_in_grid]],
                   uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= p.n) return;
    uint left = uint(i);
    ulong from = 0, to = p.first;
    for (uint axis = AXES; axis-- > 0;) {
      const uint at = left % p.extent[axis];
      left /= p.extent[axis];
      from += ulong(at) * p.from[axis];
      to += ulong(at) * p.to[axis];
    }
    out[to] = x[from];
  }
}

// x [rows, width], ids and out [rows]; an id out of range gives 0.
template <class T>
kernel void take(device const T* x [[buffer(0)]], device const u32* ids [[buffer(1)]],
                 device T* out [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                 uint group [[threadgroup_position_in_grid]],
                 uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong row = element(group, index, j);
    if (row >= p.rows) return;
    const u32 id = ids[row];
    out[row] = id < p.width ? x[row * p.width + id] : T(0);
  }
}

// table [table_rows, width], out f32 [n, width]; an id out of range gives a row of 0.
template <class T>
kernel void gather_rows(device const T* table [[buffer(0)]], device const u32* ids [[buffer(1)]],
                        device float* out [[buffer(2)]],
                        constant GatherRowsParams& p [[buffer(PARAMS)]],
                        uint group [[threadgroup_position_in_grid]],
                        uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= ulong(p.n) * p.width) return;
    const u32 id = ids[i / p.width];
    out[i] = id < p.table_rows ? widen(table[ulong(id) * p.width + i % p.width]) : 0.0f;
  }
}

// One f16 scale for each 32 of the flat index; the product is exact.
kernel void quant_gather_rows(device const char* quants [[buffer(0)]],
                              device const half* scales [[buffer(1)]],
                              device const u32* ids [[buffer(2)]], device float* out [[buffer(3)]],
                              constant GatherRowsParams& p [[buffer(PARAMS)]],
                              uint group [[threadgroup_position_in_grid]],
                              uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= ulong(p.n) * p.width) return;
    const u32 id = ids[i / p.width];
    const ulong at = ulong(id) * p.width + i % p.width;
    out[i] = id < p.table_rows ? float(quants[at]) * float(scales[at / 32]) : 0.0f;
  }
}

// state [capacity, width], rows [n, width]; of equal ids the last row wins, a row without a place
// is passed over. Few rows: each looks for its id among the rows behind it.
template <class T>
kernel void scatter_rows(device T* state [[buffer(0)]], device const T* rows [[buffer(1)]],
                         device const u32* ids [[buffer(2)]],
                         constant ScatterRowsParams& p [[buffer(PARAMS)]],
                         uint group [[threadgroup_position_in_grid]],
                         uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= ulong(p.n) * p.width) return;
    const u32 row = u32(i / p.width), id = ids[row];
    bool last = id < p.capacity;
    for (u32 later = row + 1; later < p.n; ++later) last = last && ids[later] != id;
    if (last) state[ulong(id) * p.width + i % p.width] = rows[i];
  }
}

// Many rows: the winner of each place, 1 + its row, in three launches. The greatest row is last.
kernel void scatter_clear(device const u32* ids [[buffer(2)]],
                          constant ScatterRowsParams& p [[buffer(PARAMS)]],
                          device atomic_uint* winners [[buffer(SCRATCH)]],
                          uint row [[thread_position_in_grid]]) {
  if (row < p.n && ids[row] < p.capacity)
    atomic_store_explicit(&winners[ids[row]], 0u, memory_order_relaxed);
}
kernel void scatter_elect(device const u32* ids [[buffer(2)]],
                          constant ScatterRowsParams& p [[buffer(PARAMS)]],
                          device atomic_uint* winners [[buffer(SCRATCH)]],
                          uint row [[thread_position_in_grid]]) {
  if (row < p.n && ids[row] < p.capacity)
    atomic_fetch_max_explicit(&winners[ids[row]], row + 1, memory_order_relaxed);
}
template <class T>
kernel void scatter_winners(device T* state [[buffer(0)]], device const T* rows [[buffer(1)]],
                            device const u32* ids [[buffer(2)]],
                            constant ScatterRowsParams& p [[buffer(PARAMS)]],
                            device const u32* winners [[buffer(SCRATCH)]],
                            uint group [[threadgroup_position_in_grid]],
                            uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const ulong i = element(group, index, j);
    if (i >= ulong(p.n) * p.width) return;
    const u32 row = u32(i / p.width), id = ids[row];
    if (id < p.capacity && winners[id] == row + 1)
      state[ulong(id) * p.width + i % p.width] = rows[i];
  }
}

#define SIZES(name, f)                                                  \
  template [[host_name(name "_4")]] [[kernel]] decltype(f<uint>) f<uint>; \
  template [[host_name(name "_2")]] [[kernel]] decltype(f<ushort>) f<ushort>;
SIZES("copy", copy_elements)
SIZES("contiguous", contiguous)
SIZES("concat", concat)
SIZES("take", take)
SIZES("scatter_rows", scatter_rows)
SIZES("scatter_winners", scatter_winners)
template [[host_name("copy_1")]] [[kernel]] decltype(copy_elements<uchar>) copy_elements<uchar>;
template [[host_name("contiguous_1")]] [[kernel]] decltype(contiguous<uchar>) contiguous<uchar>;
template [[host_name("concat_1")]] [[kernel]] decltype(concat<uchar>) concat<uchar>;
template [[host_name("gather_rows_f32")]] [[kernel]] decltype(gather_rows<float>)
    gather_rows<float>;
template [[host_name("gather_rows_f16")]] [[kernel]] decltype(gather_rows<half>) gather_rows<half>;
template [[host_name("gather_rows_bf16")]] [[kernel]] decltype(gather_rows<ushort>)
    gather_rows<ushort>;
