// What every shader begins with: the library, no contraction, the words of shaders/shared, and the
// places of what every kernel gets besides its operands.
//
// Operand i of a command (input slots in order, then results) is buffer(i); an absent one is bound
// to a few bytes that no kernel reads.
#pragma once
#include <metal_stdlib>
using namespace metal;
#if __METAL_VERSION__ >= 320
#pragma METAL fp contract(off)
#else
#pragma clang fp contract(off)
#endif
#include "shared/dialect.h"
#include "shared/places.h"

// For CUDA's compiler, which trades registers for groups: the most threads of a group, and the
// groups that a processor is to hold at once. Fewer of them have more reads on their way each.
#ifdef ACCEL_CUDA
#define GROUPS(threads, count) \
  [[max_total_threads_per_threadgroup(threads), groups_of_a_processor(count)]]
#else
#define GROUPS(threads, count)
#endif

// Storage types: float, half, and the bits of a bf16 as ushort.
static inline float widen(float v) {
  return v;
}
static inline float widen(half v) {
  return float(v);
}
static inline float widen(ushort v) {
  return as_type<float>(uint(v) << 16);
}
// To nearest even; any NaN becomes the one NaN that the CPU stores.
template <class T>
inline T narrow(float v) {
  return T(v);
}
template <>
inline half narrow<half>(float v) {
  return v != v ? as_type<half>(ushort(0x7e00)) : half(v);
}
