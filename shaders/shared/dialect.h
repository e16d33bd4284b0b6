// The words in which the headers of shaders/shared are written, for C++, CUDA and the Metal Shading
// Language. DEV marks a function, GLOBAL and CONSTANT the address spaces of a pointer.
#pragma once

#if defined(__METAL_VERSION__)
#define DEV static inline
#define GLOBAL device
#define CONSTANT constant
#elif defined(__CUDACC__)
#define DEV static __device__ __forceinline__
#define GLOBAL
#define CONSTANT const
#else
#define DEV static inline
#define GLOBAL
#define CONSTANT const
#endif

typedef float f32;
typedef unsigned int u32;
