// Binds the arguments of a kernel: their types are deduced from the function, the translator says
// what each one is.
#pragma once
#include "msl_hooks.h"

namespace mslrt {

template <class P>
inline P from3(const uint* v) {
  if constexpr (vt<P>::n == 1) {
    return (P)v[0];
  } else {
    P r;
    for (int i = 0; i < vt<P>::n; ++i) r[i] = v[i];
    return r;
  }
}
template <class P>
struct ptr_arg {
  static P get(void* p) { return (P)p; }
};
template <class P>
struct ptr_arg<P&> {
  static P& get(void* p) { return *(P*)p; }
};
template <int I>
struct b_buffer {
  template <class P>
  static P get(const Args& a) {
    return ptr_arg<P>::get(a.g->buf[I]);
  }
};
template <int I>
struct b_threadgroup {
  template <class P>
  static P get(const Args& a) {
    return ptr_arg<P>::get(a.g->tg[I]);
  }
};
#define MSL_B3(name, field)       \
  struct b_##name {               \
    template <class P>            \
    static P get(const Args& a) { \
      return from3<P>(a.field);   \
    }                             \
  };
#define MSL_B1(name, value)       \
  struct b_##name {               \
    template <class P>            \
    static P get(const Args& a) { \
      return (P)(value);          \
    }                             \
  };
MSL_B3(thread_position_in_grid, tid_grid)
MSL_B3(thread_position_in_threadgroup, tid)
MSL_B3(threadgroup_position_in_grid, g->tgid)
MSL_B3(threads_per_threadgroup, g->tpg)
MSL_B3(dispatch_threads_per_threadgroup, g->full)
MSL_B3(threads_per_grid, g->grid)
MSL_B3(threadgroups_per_grid, g->groups)
MSL_B1(thread_index_in_threadgroup, a.index)
MSL_B1(thread_index_in_simdgroup, a.lane)
MSL_B1(simdgroup_index_in_threadgroup, a.sg)
MSL_B1(simdgroups_per_threadgroup, a.g->simdgroups)
MSL_B1(dispatch_simdgroups_per_threadgroup, a.g->simdgroups)
MSL_B1(threads_per_simdgroup, a.lane * 0 + 32)
MSL_B1(thread_execution_width, a.lane * 0 + 32)
MSL_B1(quadgroup_index_in_threadgroup, a.index / 4)
MSL_B1(thread_index_in_quadgroup, a.lane & 3)

template <class F, F Fn>
struct Thunk;
template <class... P, void (*Fn)(P...)>
struct Thunk<void (*)(P...), Fn> {
  template <class... B>
  static void call(const Args* a) {
    Fn(B::template get<P>(*a)...);
  }
};

// What a pointer or reference points at: the size and alignment that a binding must have.
template <class P>
struct pointee {
  typedef typename noptr<typename noref<P>::type>::type type;
  static constexpr unsigned size = sizeof(type), align = alignof(type);
};
template <class F>
struct Shapes;
template <class... P>
struct Shapes<void (*)(P...)> {
  static constexpr unsigned sizes[] = {pointee<P>::size..., 0};
  static constexpr unsigned aligns[] = {pointee<P>::align..., 0};
};

}  // namespace mslrt

#define MSL_TABLE_BEGIN extern "C" const mslrt::Entry msl_table[] = {
#define MSL_ENTRY(host, fn, meta, maxt, ...)                                     \
  {host,                                                                         \
   &mslrt::Thunk<decltype(&MSL_UNPAREN fn), &MSL_UNPAREN fn>::call<__VA_ARGS__>, \
   meta,                                                                         \
   maxt,                                                                         \
   mslrt::Shapes<decltype(&MSL_UNPAREN fn)>::sizes,                              \
   mslrt::Shapes<decltype(&MSL_UNPAREN fn)>::aligns},
#define MSL_TABLE_END  \
  { 0, 0, 0, 0, 0, 0 } \
  }                    \
  ;
