// f16 as storage: converted to nearest even, subnormals included, and computed in f32.
#pragma once

struct half {
  unsigned short bits;
  half() = default;
  explicit __forceinline__ half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __forceinline__ operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
