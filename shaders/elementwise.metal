// The elementwise operators: out[i] = f(x[i mod x_block], y[i mod y_block]), computed in f32 and
// rounded once. A thread has four elements, a group apart, so that neighbours read neighbours.
#include "kernel.h"
#include "float_math.h"
#include "order.h"
#include "shared/params/clamp.h"
#include "shared/params/elementwise.h"

#define THREADS 256
#define ELEMENTS 4

struct Add {
  static inline float of(float x, float y) { return x + y; }
};
struct Sub {
  static inline float of(float x, float y) { return x - y; }
};
struct Mul {
  static inline float of(float x, float y) { return x * y; }
};
struct SwiGlu {
  static inline float of(float x, float y) { return math_swiglu(x, y); }
};
struct Same {
  static inline float of(float x) { return x; }
};
struct Silu {
  static inline float of(float x) { return math_silu(x); }
};
struct Exp {
  static inline float of(float x) { return math_exp(x); }
};
struct Tanh {
  static inline float of(float x) { return math_tanh(x); }
};
struct Sigmoid {
  static inline float of(float x) { return math_sigmoid(x); }
};
struct Softplus {
  static inline float of(float x) { return math_softplus(x); }
};
struct GeluErf {
  static inline float of(float x) { return math_gelu_erf(x); }
};
struct GeluTanh {
  static inline float of(float x) { return math_gelu_tanh(x); }
};

static inline uint element(uint group, uint index, uint j) {
  return group * (THREADS * ELEMENTS) + j * THREADS + index;
}

template <class Op, class T>
kernel void map_two(device const T* x [[buffer(0)]], device const T* y [[buffer(1)]],
                    device T* out [[buffer(2)]], constant ElementwiseParams& p [[buffer(PARAMS)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const uint i = element(group, index, j);
    if (i < p.n) out[i] = narrow<T>(Op::of(widen(x[i % p.x_block]), widen(y[i % p.y_block])));
  }
}

template <class Op, class X, class Y>
kernel void map_one(device const X* x [[buffer(0)]], device Y* out [[buffer(1)]],
                    constant ElementwiseParams& p [[buffer(PARAMS)]],
                    uint group [[threadgroup_position_in_grid]],
                    uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const uint i = element(group, index, j);
    if (i < p.n) out[i] = narrow<Y>(Op::of(widen(x[i % p.x_block])));
  }
}

template <class T>
kernel void scale(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                  constant ElementwiseParams& p [[buffer(PARAMS)]],
                  constant u32* scalars [[buffer(SCALARS)]],
                  uint group [[threadgroup_position_in_grid]],
                  uint index [[thread_index_in_threadgroup]]) {
  const float factor = as_type<float>(scalars[0]);
  for (uint j = 0; j < ELEMENTS; ++j) {
    const uint i = element(group, index, j);
    if (i < p.n) out[i] = narrow<T>(widen(x[i % p.x_block]) * factor);
  }
}

// What stays is moved, and NaN stays.
template <class T>
kernel void clamp_between(device const T* x [[buffer(0)]], device T* out [[buffer(1)]],
                          constant ClampParams& p [[buffer(PARAMS)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]]) {
  for (uint j = 0; j < ELEMENTS; ++j) {
    const uint i = element(group, index, j);
    if (i >= p.n) return;
    const T own = x[i % p.x_block];
    const u32 key = key_of(widen(own));
    T to = own;
    if (key == 0) to = narrow<T>(widen(own));
    else if (key < key_of(p.low)) to = narrow<T>(p.low);
    else if (key > key_of(p.high)) to = narrow<T>(p.high);
    out[i] = to;
  }
}

#define TWO(name, Op)                                                                    \
  template [[host_name(name "_f32")]] [[kernel]] decltype(map_two<Op, float>)            \
      map_two<Op, float>;                                                                \
  template [[host_name(name "_f16")]] [[kernel]] decltype(map_two<Op, half>) map_two<Op, half>;
#define ONE(name, Op)                                                                    \
  template [[host_name(name "_f32")]] [[kernel]] decltype(map_one<Op, float, float>)     \
      map_one<Op, float, float>;                                                         \
  template [[host_name(name "_f16")]] [[kernel]] decltype(map_one<Op, half, half>)       \
      map_one<Op, half, half>;
TWO("add", Add)
TWO("sub", Sub)
TWO("mul", Mul)
TWO("swiglu", SwiGlu)
ONE("silu", Silu)
ONE("exp", Exp)
ONE("tanh", Tanh)
ONE("sigmoid", Sigmoid)
ONE("softplus", Softplus)
ONE("gelu_erf", GeluErf)
ONE("gelu_tanh", GeluTanh)
template [[host_name("cast_f32_f16")]] [[kernel]] decltype(map_one<Same, float, half>)
    map_one<Same, float, half>;
template [[host_name("cast_f16_f32")]] [[kernel]] decltype(map_one<Same, half, float>)
    map_one<Same, half, float>;
template [[host_name("cast_bf16_f32")]] [[kernel]] decltype(map_one<Same, ushort, float>)
    map_one<Same, ushort, float>;
template [[host_name("scale_f32")]] [[kernel]] decltype(scale<float>) scale<float>;
template [[host_name("scale_f16")]] [[kernel]] decltype(scale<half>) scale<half>;
template [[host_name("clamp_f32")]] [[kernel]] decltype(clamp_between<float>) clamp_between<float>;
template [[host_name("clamp_f16")]] [[kernel]] decltype(clamp_between<half>) clamp_between<half>;
