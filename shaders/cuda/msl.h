// What a shader's text finds in <metal_stdlib>, for CUDA: what the shaders use, and no more. Every
// function is one of the device (the compiler is told so), and all are inlined.
//
// Threads of a group are a multiple of 32 in one dimension, so a SIMD group is a warp and the index
// of a thread in it is that of the thread modulo 32. All lanes call what exchanges.
#pragma once
#include "cuda/half.h"
#include "cuda/vector.h"

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
static_assert(sizeof(ulong) == 8, "as in Metal");

#define INFINITY __int_as_float(0x7f800000)
#define MSL_MOST_THREADS 256  // of a group of any launch

namespace metal {

template <class To, class From>
__forceinline__ To as_type(From x) {
  static_assert(sizeof(To) == sizeof(From), "the bits of one as the other");
  To y;
  memcpy(&y, &x, sizeof y);
  return y;
}

// ---------------------------------------------------------------- functions

__forceinline__ float fma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
__forceinline__ vec<float, 4> fma(vec<float, 4> a, vec<float, 4> b, vec<float, 4> c) {
  return vec<float, 4>(fma(a.x, b.x, c.x), fma(a.y, b.y, c.y), fma(a.z, b.z, c.z),
                       fma(a.w, b.w, c.w));
}
__forceinline__ float sqrt(float x) {
  return __fsqrt_rn(x);
}
template <class T>
__forceinline__ T min(T a, T b) {
  return b < a ? b : a;
}
template <class T>
__forceinline__ T max(T a, T b) {
  return a < b ? b : a;
}

// ---------------------------------------------------------------- groups

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2 };
__forceinline__ mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags(uint(a) | uint(b));
}
// Both order shared and device memory among those that meet.
__forceinline__ void threadgroup_barrier(mem_flags) {
  __syncthreads();
}
__forceinline__ void simdgroup_barrier(mem_flags) {
  __syncwarp();
}
template <class T>
__forceinline__ T simd_shuffle_xor(T x, ushort mask) {
  return __shfl_xor_sync(0xffffffffu, x, mask);
}
template <class T>
__forceinline__ T simd_shuffle(T x, ushort lane) {
  return __shfl_sync(0xffffffffu, x, lane);
}

// ---------------------------------------------------------------- atomics

struct atomic_uint {
  uint value;
};
enum memory_order { memory_order_relaxed };
__forceinline__ void atomic_store_explicit(atomic_uint* a, uint x, memory_order) {
  *(volatile uint*)&a->value = x;
}
__forceinline__ uint atomic_load_explicit(const atomic_uint* a, memory_order) {
  return *(const volatile uint*)&a->value;
}
__forceinline__ uint atomic_fetch_add_explicit(atomic_uint* a, uint x, memory_order) {
  return atomicAdd(&a->value, x);
}
__forceinline__ uint atomic_fetch_max_explicit(atomic_uint* a, uint x, memory_order) {
  return atomicMax(&a->value, x);
}

}  // namespace metal

// ---------------------------------------------------------------- entries

namespace msl {

// The type of argument I of a function: as it is, and without reference and const.
template <int I, class F>
struct Argument;
template <int I, class R, class A, class... Rest>
struct Argument<I, R(A, Rest...)> : Argument<I - 1, R(Rest...)> {};
template <class R, class A, class... Rest>
struct Argument<0, R(A, Rest...)> {
  typedef A type;
};
template <class T>
struct Bare {
  typedef T type;
};
template <class T>
struct Bare<const T&> {
  typedef T type;
};
template <int I, class F>
using pointer = typename Argument<I, F>::type;
template <int I, class F>
using value = typename Bare<typename Argument<I, F>::type>::type;

// A position, as however many dimensions a kernel asks for.
struct Place {
  uint x, y, z;
  __forceinline__ operator uint() const { return x; }
  __forceinline__ operator metal::vec<uint, 2>() const { return metal::vec<uint, 2>(x, y); }
  __forceinline__ operator metal::vec<uint, 3>() const { return metal::vec<uint, 3>(x, y, z); }
};
template <class T>
__forceinline__ Place place(T at) {
  return {at.x, at.y, at.z};
}
__forceinline__ Place in_grid() {
  return {blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y, blockIdx.z};
}

}  // namespace msl
