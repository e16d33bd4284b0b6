// Scalar and vector types, address spaces, constants.
#pragma once

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
typedef __UINTPTR_TYPE__ uintptr_t;
typedef _Float16 half;
typedef __bf16 bfloat;

#ifdef MSL_LINT
#define device __attribute__((address_space(1)))
#define constant const __attribute__((address_space(2)))
#define threadgroup __attribute__((address_space(3)))
#else
#define device
#define constant const
#define threadgroup
#endif
#define thread
#define MSL_KERNEL_FN
#define METAL_FUNC inline __attribute__((always_inline))

#define MSL_VECS(T)                                   \
  typedef T T##2 __attribute__((ext_vector_type(2))); \
  typedef T T##3 __attribute__((ext_vector_type(3))); \
  typedef T T##4 __attribute__((ext_vector_type(4)));
MSL_VECS(float)
MSL_VECS(half)
MSL_VECS(bfloat)
MSL_VECS(int)
MSL_VECS(uint)
MSL_VECS(short)
MSL_VECS(ushort)
MSL_VECS(char)
MSL_VECS(uchar)
MSL_VECS(bool)
MSL_VECS(long)
MSL_VECS(ulong)
#undef MSL_VECS

#define INFINITY __builtin_inff()
#define HUGE_VALF __builtin_inff()
#define NAN __builtin_nanf("")
#define FLT_MAX __FLT_MAX__
#define FLT_MIN __FLT_MIN__
#define FLT_EPSILON __FLT_EPSILON__
#define INT_MAX __INT_MAX__
#define INT_MIN (-__INT_MAX__ - 1)
#define UINT_MAX 0xffffffffu
#define HALF_MAX ((half)65504.0f)
#define M_PI_F 3.14159265358979323846f
#define M_LOG2E_F 1.44269504088896340736f
#define M_LN2_F 0.69314718055994530942f
#define MAXFLOAT __FLT_MAX__

constexpr half operator""h(long double v) {
  return (half)v;
}
constexpr half operator""h(unsigned long long v) {
  return (half)v;
}
constexpr bfloat operator"" bf(long double v) {
  return (bfloat)(float)v;
}
