// <metal_atomic>: relaxed only, as MSL allowed until 3.2.
#pragma once
#include "msl_types.h"

namespace metal {

enum memory_order { memory_order_relaxed };
template <class T>
struct _atomic {
  T v;
};
template <class T>
using atomic = _atomic<T>;
typedef _atomic<int> atomic_int;
typedef _atomic<uint> atomic_uint;
typedef _atomic<bool> atomic_bool;
typedef _atomic<float> atomic_float;
typedef _atomic<ulong> atomic_ulong;

template <class P>
inline auto atomic_load_explicit(P p, memory_order) {
  return __atomic_load_n(&p->v, 0);
}
template <class P, class T>
inline void atomic_store_explicit(P p, T v, memory_order) {
  __atomic_store_n(&p->v, v, 0);
}
template <class P, class T>
inline auto atomic_exchange_explicit(P p, T v, memory_order) {
  return __atomic_exchange_n(&p->v, v, 0);
}
#define MSL_FETCH(name)                                                \
  template <class P, class T>                                          \
  inline auto atomic_fetch_##name##_explicit(P p, T v, memory_order) { \
    return __atomic_fetch_##name(&p->v, v, 0);                         \
  }
MSL_FETCH(add)
MSL_FETCH(sub)
MSL_FETCH(max)
MSL_FETCH(min)
MSL_FETCH(and)
MSL_FETCH(or)
MSL_FETCH(xor)
#undef MSL_FETCH
template <class P, class E, class T>
inline bool atomic_compare_exchange_weak_explicit(P p, E expected, T desired, memory_order,
                                                  memory_order) {
  auto seen = *expected;
  const bool done = __atomic_compare_exchange_n(&p->v, &seen, desired, true, 0, 0);
  *expected = seen;
  return done;
}

}  // namespace metal
