// rms_norm and l2_norm: sixteen threads a row, sums in lane16.
#include "kernel.h"
#include "lanes.h"
#include "shared/params/rows.h"

#define ROWS_A_GROUP 16  // of sixteen threads each

template <class T, class Exchange>
kernel void rms_norm(device const T* x [[buffer(0)]], device const float* gain [[buffer(1)]],
                     device T* out [[buffer(2)]], constant RowsParams& p [[buffer(PARAMS)]],
                     uint group [[threadgroup_position_in_grid]],
                     uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const bool here = row < p.rows;
  const ulong start = ulong(row) * p.width;
  float a = 0.0f;
  for (uint i = lane; here && i < p.width; i += 16) {
    const float v = widen(x[start + i]);
    a = fma(v, v, a);
  }
  const float squares = Exchange::sum16(a, slots, index);
  const float scale = 1.0f / sqrt(squares / float(p.width) + p.eps);
  for (uint i = lane; here && i < p.width; i += 16)
    out[start + i] = narrow<T>(widen(x[start + i]) * scale * gain[i]);
}

template <class Exchange>
kernel void l2_norm(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                    constant RowsParams& p [[buffer(PARAMS)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  threadgroup float slots[ROWS_A_GROUP * 16];
  const uint lane = index % 16, row = group * ROWS_A_GROUP + index / 16;
  const bool here = row < p.rows;
  const ulong start = ulong(row) * p.width;
  float a = 0.0f;
  for (uint i = lane; here && i < p.width; i += 16) {
    const float v = x[start + i];
    a = fma(v, v, a);
  }
  const float scale = 1.0f / sqrt(Exchange::sum16(a, slots, index) + p.eps);
  for (uint i = lane; here && i < p.width; i += 16) out[start + i] = x[start + i] * scale;
}

template [[host_name("rms_norm_f32")]] [[kernel]] decltype(rms_norm<float, Simd>)
    rms_norm<float, Simd>;
template [[host_name("rms_norm_f32_plain")]] [[kernel]] decltype(rms_norm<float, Plain>)
    rms_norm<float, Plain>;
template [[host_name("rms_norm_f16")]] [[kernel]] decltype(rms_norm<half, Simd>)
    rms_norm<half, Simd>;
template [[host_name("rms_norm_f16_plain")]] [[kernel]] decltype(rms_norm<half, Plain>)
    rms_norm<half, Plain>;
template [[host_name("l2_norm_f32")]] [[kernel]] decltype(l2_norm<Simd>) l2_norm<Simd>;
template [[host_name("l2_norm_f32_plain")]] [[kernel]] decltype(l2_norm<Plain>) l2_norm<Plain>;
