// Barriers, and what the lanes of a simdgroup exchange.
#pragma once
#include "msl_kinds.h"
#include "msl_math.h"

namespace metal {

enum class mem_flags : uint { mem_none = 0, mem_device = 1, mem_threadgroup = 2, mem_texture = 4 };
inline constexpr mem_flags operator|(mem_flags a, mem_flags b) {
  return mem_flags((uint)a | (uint)b);
}
inline void threadgroup_barrier(mem_flags f, MSL_AT) {
  mslemu_barrier((uint)f, line, file);
}
inline void simdgroup_barrier(mem_flags f, MSL_AT) {
  mslemu_simdgroup_barrier((uint)f, line, file);
}

inline constexpr uint simd_width = 32;

// Every lane hands in a value and sees all of them.
template <class T>
struct msl_lanes {
  const T* value;
  mslrt::Exchange* all;
  uint lane;
};
template <class T>
inline msl_lanes<T> msl_exchange(T v, uint kind, uint line, const char* file) {
  static_assert(sizeof(T) <= 64, "too large for a simdgroup exchange");
  const mslrt::Seen s = mslemu_exchange(&v, sizeof(T), kind, line, file);
  return {(const T*)s.all->values, s.all, (uint)s.lane};
}

// A tree over the lanes that take part, halves first; computed by the first lane that comes back.
template <class T, class F>
inline T msl_reduce(msl_lanes<T> in, F f) {
  if (!in.all->reduced) {
    T a[32];
    bool on[32];
    for (uint i = 0; i < 32; ++i) {
      on[i] = (in.all->mask >> i) & 1;
      if (on[i]) a[i] = in.value[i];
    }
    for (uint s = 16; s; s >>= 1)
      for (uint i = 0; i < s; ++i) {
        if (on[i] && on[i + s]) {
          a[i] = f(a[i], a[i + s]);
        } else if (on[i + s]) {
          a[i] = a[i + s];
          on[i] = true;
        }
      }
    *(T*)in.all->result = a[0];
    in.all->reduced = 1;
  }
  return *(const T*)in.all->result;
}
#define MSL_SIMD_REDUCE(name, op)                                                                 \
  template <class T>                                                                              \
  inline T name(T v, MSL_AT) {                                                                    \
    return msl_reduce(msl_exchange(v, mslrt::k_##name, line, file), [](T x, T y) { return op; }); \
  }
MSL_SIMD_REDUCE(simd_sum, (T)(x + y))
MSL_SIMD_REDUCE(simd_product, (T)(x* y))
MSL_SIMD_REDUCE(simd_max, max(x, y))
MSL_SIMD_REDUCE(simd_min, min(x, y))
MSL_SIMD_REDUCE(simd_or, (T)(x | y))
MSL_SIMD_REDUCE(simd_and, (T)(x& y))
MSL_SIMD_REDUCE(simd_xor, (T)(x ^ y))
#undef MSL_SIMD_REDUCE

template <class T>
inline T simd_shuffle(T v, ushort from, MSL_AT) {
  return msl_exchange(v, mslrt::k_simd_shuffle, line, file).value[from & 31];
}
template <class T>
inline T simd_shuffle_xor(T v, ushort m, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_shuffle_xor, line, file);
  return p.value[(p.lane ^ m) & 31];
}
template <class T>
inline T simd_shuffle_down(T v, ushort d, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_shuffle_down, line, file);
  return p.lane + d < 32 ? p.value[p.lane + d] : v;
}
template <class T>
inline T simd_shuffle_up(T v, ushort d, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_shuffle_up, line, file);
  return p.lane >= d ? p.value[p.lane - d] : v;
}
template <class T>
inline T simd_shuffle_rotate_down(T v, ushort d, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_shuffle_rotate, line, file);
  return p.value[(p.lane + d) & 31];
}
template <class T>
inline T simd_shuffle_rotate_up(T v, ushort d, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_shuffle_rotate, line, file);
  return p.value[(p.lane - d) & 31];
}
template <class T>
inline T simd_shuffle_and_fill_down(T v, T f, ushort d, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_fill_down, line, file);
  const uint at = p.lane + d;
  const T r = p.value[at & 31];
  const T g = simd_shuffle(f, at & 31, line, file);
  return at < 32 ? r : g;
}
template <class T>
inline T simd_shuffle_and_fill_up(T v, T f, ushort d, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_fill_up, line, file);
  const uint lane = p.lane;
  const T r = p.value[(lane - d) & 31];
  const T g = simd_shuffle(f, (lane - d) & 31, line, file);
  return lane >= d ? r : g;
}
template <class T>
inline T simd_broadcast(T v, ushort from, MSL_AT) {
  return msl_exchange(v, mslrt::k_simd_broadcast, line, file).value[from & 31];
}
template <class T>
inline T simd_broadcast_first(T v, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_broadcast_first, line, file);
  return p.value[ctz(p.all->mask)];
}
template <class T>
inline T simd_prefix_inclusive_sum(T v, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_prefix, line, file);
  T s = (T)0;
  for (uint i = 0; i <= p.lane; ++i)
    if ((p.all->mask >> i) & 1) s += p.value[i];
  return s;
}
template <class T>
inline T simd_prefix_exclusive_sum(T v, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_prefix, line, file);
  T s = (T)0;
  for (uint i = 0; i < p.lane; ++i)
    if ((p.all->mask >> i) & 1) s += p.value[i];
  return s;
}
template <class T>
inline T simd_prefix_inclusive_product(T v, MSL_AT) {
  const msl_lanes<T> p = msl_exchange(v, mslrt::k_simd_prefix, line, file);
  T s = (T)1;
  for (uint i = 0; i <= p.lane; ++i)
    if ((p.all->mask >> i) & 1) s *= p.value[i];
  return s;
}
inline bool simd_any(bool v, MSL_AT) {
  return simd_or((uint)v, line, file) != 0;
}
inline bool simd_all(bool v, MSL_AT) {
  return simd_and((uint)v, line, file) != 0;
}
struct simd_vote {
  ulong bits;
  explicit operator ulong() const { return bits; }
};
inline simd_vote simd_ballot(bool v, MSL_AT) {
  const uint lane = mslemu_lane();
  return {(ulong)simd_or((uint)v << lane, line, file)};
}
inline bool simd_is_first() {
  return mslemu_lane() == ctz(mslemu_active_mask());
}

}  // namespace metal
