// Sums along a row in the order lane16 (specs/010 section 4): sixteen neighbouring threads are the
// lanes, each with a chain of its own, and lane i adds lane i + h for h = 8, 4, 2, 1. `Plain` goes
// through threadgroup memory, for devices whose SIMD groups exchange nothing; the bits are equal.
#pragma once

struct Simd {
  // Of the sixteen lanes around this thread; every thread of the group calls it.
  static inline float sum16(float a, threadgroup float*, uint) {
    for (ushort h = 8; h > 0; h /= 2) a = a + simd_shuffle_xor(a, h);
    return a;
  }
  // The greatest, NaN aside.
  static inline float max16(float a, threadgroup float*, uint) {
    for (ushort h = 8; h > 0; h /= 2) {
      const float b = simd_shuffle_xor(a, h);
      a = b > a ? b : a;
    }
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
  static inline float max16(float a, threadgroup float* slots, uint thread_index) {
    for (ushort h = 8; h > 0; h /= 2) {
      threadgroup_barrier(mem_flags::mem_threadgroup);
      slots[thread_index] = a;
      threadgroup_barrier(mem_flags::mem_threadgroup);
      const float b = slots[thread_index ^ h];
      a = b > a ? b : a;
    }
    return a;
  }
};
