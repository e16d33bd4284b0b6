// What a module calls in the emulator, vector constructors, threadgroup variables.
#pragma once
#include "msl_args.h"
#include "msl_types.h"

// The place of a barrier or an exchange in the .metal text.
#define MSL_AT uint line = __builtin_LINE(), const char *file = __builtin_FILE()

extern "C" {
void mslemu_barrier(unsigned flags, unsigned line, const char* file);
void mslemu_simdgroup_barrier(unsigned flags, unsigned line, const char* file);
mslrt::Seen mslemu_exchange(const void* value, unsigned bytes, unsigned kind, unsigned line,
                            const char* file);
// Every lane must be here, and nothing is exchanged.
void mslemu_collective(unsigned kind, unsigned line, const char* file);
unsigned mslemu_lane(void);
unsigned mslemu_active_mask(void);
void* mslemu_threadgroup_var(const void* tag, unsigned long bytes);
bool mslemu_function_constant(unsigned index, void* out, unsigned bytes);
}

namespace mslrt {

template <class T>
struct vt {
  typedef T elem;
  static constexpr int n = 1;
};
template <class T, int N>
struct vt<T __attribute__((ext_vector_type(N)))> {
  typedef T elem;
  static constexpr int n = N;
};
template <class T>
struct noref {
  typedef T type;
};
template <class T>
struct noref<T&> {
  typedef T type;
};
template <class T>
struct noptr {
  typedef T type;
};
template <class T>
struct noptr<T*> {
  typedef T type;
};

// mk<float4>(x), mk<float4>(a, b, c, d), mk<float4>(v2, c, d), mk<float4>(half4)
template <class V, int I, class A>
inline void put(V& v, A a) {
  typedef typename vt<V>::elem E;
  if constexpr (vt<A>::n == 1) v[I] = (E)a;
  else
    for (int k = 0; k < vt<A>::n; ++k) v[I + k] = (E)a[k];
}
template <class V, int I>
inline void fill(V&) {
  static_assert(I == vt<V>::n, "wrong number of components in a vector constructor");
}
template <class V, int I, class A, class... R>
inline void fill(V& v, A a, R... r) {
  put<V, I>(v, a);
  fill<V, I + vt<A>::n>(v, r...);
}
template <class V, class A>
inline V mk(A a) {
  V v;
  if constexpr (vt<A>::n == 1) {
    for (int k = 0; k < vt<V>::n; ++k) v[k] = (typename vt<V>::elem)a;
  } else {
    static_assert(vt<A>::n == vt<V>::n, "vector conversion between different sizes");
    for (int k = 0; k < vt<V>::n; ++k) v[k] = (typename vt<V>::elem)a[k];
  }
  return v;
}
template <class V, class A, class B, class... R>
inline V mk(A a, B b, R... r) {
  V v;
  fill<V, 0>(v, a, b, r...);
  return v;
}
template <class V>
inline V mk() {
  return V(0);
}
template <class T>
inline T fconst(unsigned index) {
  T v{};
  mslemu_function_constant(index, &v, sizeof(T));
  return v;
}

}  // namespace mslrt

#define MSL_UNPAREN(...) __VA_ARGS__
// `threadgroup T x[N];` : one object per site and threadgroup, handed out by the emulator, which
// fills it with NaN patterns before each group, since MSL gives it no initial value.
#ifdef MSL_LINT
#define MSL_THREADGROUP_VAR(T, name, dims, line)         \
  typedef MSL_UNPAREN T msl_tgt_##name MSL_UNPAREN dims; \
  threadgroup msl_tgt_##name& name = *(threadgroup msl_tgt_##name*)16
#else
#define MSL_THREADGROUP_VAR(T, name, dims, line)         \
  typedef MSL_UNPAREN T msl_tgt_##name MSL_UNPAREN dims; \
  static const char msl_tag_##name = 0;                  \
  msl_tgt_##name& name =                                 \
      *(msl_tgt_##name*)mslemu_threadgroup_var(&msl_tag_##name, sizeof(msl_tgt_##name))
#endif
#define MSL_FUNCTION_CONSTANT(T, name, index)    \
  static const T name = mslrt::fconst<T>(index); \
  static const bool msl_fc_defined_##name = mslemu_function_constant(index, 0, 0)
#define is_function_constant_defined(name) msl_fc_defined_##name

template <class D, class S>
inline D as_type(S s) {
  static_assert(sizeof(D) == sizeof(S), "as_type between different sizes");
  return __builtin_bit_cast(D, s);
}

namespace metal {
template <class T, int N>
using vec = T __attribute__((ext_vector_type(N)));
}  // namespace metal
