#include "msl_core.h"
# 1 "mslemu-cache/0a97071e40cecfe1.metal"
# 1 "<built-in>" 1
# 1 "<built-in>" 3
# 11 "<built-in>" 3
# 1 "<command line>" 1
# 1 "<built-in>" 2
# 1 "mslemu-cache/0a97071e40cecfe1.metal" 2
# 1 "rms_norm.metal"
# 1 "kernel.h"






# 1 "/tmp/w/mxemu/emu/../shim/empty/metal_stdlib" 1
# 8 "kernel.h" 2
using namespace metal;



#pragma clang fp contract(off)
# 1 "shared/dialect.h"
# 19 "shared/dialect.h"
typedef float f32;
typedef unsigned int u32;
# 15 "kernel.h"
# 1 "shared/places.h"
# 16 "kernel.h"


static inline float widen(float v) {
  return v;
}
static inline float widen(half v) {
  return float(v);
}
static inline float widen(ushort v) {
  return as_type<float>(uint(v) << 16);
}
template <class T>
static inline T narrow(float v) {
  return T(v);
}
# 3 "rms_norm.metal"
# 1 "lanes.h"





struct Simd {

  static inline float sum16(float a, threadgroup float*, uint) {
    for (ushort h = 8; h > 0; h /= 2) a = a + simd_shuffle_xor(a, h);
    return a;
  }
};

struct Plain {
  static inline float sum16(float a, threadgroup float* slots, uint thread_index) {
    for (ushort h = 8; h > 0; h /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      slots[thread_index] = a;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      a = a + slots[thread_index ^ h];
    }
    return a;
  }
};
# 4 "rms_norm.metal"
# 1 "shared/params/rows.h"



struct RowsParams {
  unsigned rows, width;
  float eps, p;
  unsigned k, exact;
};
static_assert(sizeof(RowsParams) == 24, "read by kernels of three compilers");
# 5 "rms_norm.metal"



template <class T, class Exchange>
MSL_KERNEL_FN void rms_norm(device const T* x , device const float* gain ,
                     device T* out , constant RowsParams& p ,
                     uint group ,
                     uint index ) {
  MSL_THREADGROUP_VAR((float), slots, ([16 * 16]), 13);    
  const uint lane = index % 16, row = group * 16 + index / 16;
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
MSL_KERNEL_FN void l2_norm(device const float* x , device float* out ,
                    constant RowsParams& p ,
                    uint group ,
                    uint index ) {
  MSL_THREADGROUP_VAR((float), slots, ([16 * 16]), 33);    
  const uint lane = index % 16, row = group * 16 + index / 16;
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

    
     
    
     
    
     
    
     
    
    

# 1 "<mslc table>"
MSL_TABLE_BEGIN
MSL_ENTRY("rms_norm_f32", (rms_norm < float , Simd >), "buffer:0:r;buffer:1:r;buffer:2:w;buffer:27:r&;threadgroup_position_in_grid:0:w;thread_index_in_threadgroup:0:w", 1024, mslrt::b_buffer<(0)>, mslrt::b_buffer<(1)>, mslrt::b_buffer<(2)>, mslrt::b_buffer<(27)>, mslrt::b_threadgroup_position_in_grid, mslrt::b_thread_index_in_threadgroup)
MSL_ENTRY("rms_norm_f32_plain", (rms_norm < float , Plain >), "buffer:0:r;buffer:1:r;buffer:2:w;buffer:27:r&;threadgroup_position_in_grid:0:w;thread_index_in_threadgroup:0:w", 1024, mslrt::b_buffer<(0)>, mslrt::b_buffer<(1)>, mslrt::b_buffer<(2)>, mslrt::b_buffer<(27)>, mslrt::b_threadgroup_position_in_grid, mslrt::b_thread_index_in_threadgroup)
MSL_ENTRY("rms_norm_f16", (rms_norm < half , Simd >), "buffer:0:r;buffer:1:r;buffer:2:w;buffer:27:r&;threadgroup_position_in_grid:0:w;thread_index_in_threadgroup:0:w", 1024, mslrt::b_buffer<(0)>, mslrt::b_buffer<(1)>, mslrt::b_buffer<(2)>, mslrt::b_buffer<(27)>, mslrt::b_threadgroup_position_in_grid, mslrt::b_thread_index_in_threadgroup)
MSL_ENTRY("rms_norm_f16_plain", (rms_norm < half , Plain >), "buffer:0:r;buffer:1:r;buffer:2:w;buffer:27:r&;threadgroup_position_in_grid:0:w;thread_index_in_threadgroup:0:w", 1024, mslrt::b_buffer<(0)>, mslrt::b_buffer<(1)>, mslrt::b_buffer<(2)>, mslrt::b_buffer<(27)>, mslrt::b_threadgroup_position_in_grid, mslrt::b_thread_index_in_threadgroup)
MSL_ENTRY("l2_norm_f32", (l2_norm < Simd >), "buffer:0:r;buffer:1:w;buffer:27:r&;threadgroup_position_in_grid:0:w;thread_index_in_threadgroup:0:w", 1024, mslrt::b_buffer<(0)>, mslrt::b_buffer<(1)>, mslrt::b_buffer<(27)>, mslrt::b_threadgroup_position_in_grid, mslrt::b_thread_index_in_threadgroup)
MSL_ENTRY("l2_norm_f32_plain", (l2_norm < Plain >), "buffer:0:r;buffer:1:w;buffer:27:r&;threadgroup_position_in_grid:0:w;thread_index_in_threadgroup:0:w", 1024, mslrt::b_buffer<(0)>, mslrt::b_buffer<(1)>, mslrt::b_buffer<(27)>, mslrt::b_threadgroup_position_in_grid, mslrt::b_thread_index_in_threadgroup)
MSL_TABLE_END
