// Values of the kernels of shaders/cuda: f16 and bf16 as f32, and words of shared memory.
#pragma once
#include "cuda/ptx.h"

DEV float through_bf16(float v) {
  if (v != v) return __uint_as_float(0x7fc00000u);
  const u32 whole = __float_as_uint(v), odd = whole >> 16 & 1;
  return __uint_as_float((whole + 0x7fff + odd) & 0xffff0000u);
}
// ProductParams::activations of 0, 1 and 2.
DEV float rounded_to(float v, u32 to) {
  return to == 0 ? v : to == 1 ? through_f16(v) : through_bf16(v);
}

struct AsF32 {
  typedef float T;
  DEV float widen(float v) { return v; }
};
struct AsF16 {
  typedef u16 T;
  DEV float widen(u16 v) { return f16_to_f32(v); }
};
struct AsBf16 {
  typedef u16 T;
  DEV float widen(u16 v) { return __uint_as_float(u32(v) << 16); }
};

// L neighbouring words of shared memory.
template <int L>
DEV void load_words(const char* from, u32* to) {
  if constexpr (L == 1) {
    to[0] = *(const u32*)from;
  } else if constexpr (L == 2) {
    const uint2 v = *(const uint2*)from;
    to[0] = v.x, to[1] = v.y;
  } else {
#pragma unroll
    for (int i = 0; i < L; i += 4) {
      const uint4 v = *(const uint4*)(from + 4 * i);
      to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
  }
}
