// simdgroup_matrix: 2 of the 64 elements in each lane.
#pragma once
#include "msl_simd.h"

namespace metal {

template <class T, int R, int C>
struct simdgroup_matrix {
  static_assert(R == 8 && C == 8, "only 8x8");
  typedef T msl_elem;
  vec<T, 2> e;
  simdgroup_matrix() {
#ifndef MSL_LINT
    e = (vec<T, 2>)__builtin_nanf("");  // unset until loaded
#endif
  }
  explicit simdgroup_matrix(T d) {  // a diagonal matrix
    ushort r, c;
    where(r, c);
    e[0] = r == c ? d : (T)0;
    e[1] = r == c + 1 ? d : (T)0;
  }
  thread vec<T, 2>& thread_elements() thread { return e; }
  static void where(thread ushort& r, thread ushort& c) {
    ushort l = mslemu_lane(), q = l / 4;
    r = (q & 4) + ((l / 2) % 4);
    c = (q & 2) * 2 + (l % 2) * 2;
  }
  // The lane that holds (row, column pair): the inverse of where().
  static uint lane_of(uint row, uint column) {
    return (row & 4) * 4 + (column & 4) * 2 + (row & 3) * 2 + ((column & 2) >> 1);
  }
};
template <class T>
using msl_m8 = simdgroup_matrix<T, 8, 8>;
typedef msl_m8<float> simdgroup_float8x8;
typedef msl_m8<half> simdgroup_half8x8;
typedef msl_m8<bfloat> simdgroup_bfloat8x8;

template <class T>
inline msl_m8<T> make_filled_simdgroup_matrix(T v) {
  msl_m8<T> m;
  m.e = (vec<T, 2>)v;
  return m;
}
template <class T, int R, int C = R>
inline simdgroup_matrix<T, R, C> make_filled_simdgroup_matrix(T v) {
  msl_m8<T> m;
  m.e = (vec<T, 2>)v;
  return m;
}

struct msl_one {
  int v;
};
template <class T, class S>
inline void simdgroup_load(thread msl_m8<T>& d, S src, ulong ld = 8, ulong2 origin = (ulong2)0,
                           bool transpose = false, MSL_AT) {
  static_assert(sizeof(*src) == sizeof(T), "simdgroup_load: element types differ");
  ushort r, c;
  d.where(r, c);
  msl_exchange(msl_one{0}, mslrt::k_matrix_load, line, file);  // all 32 lanes must be here
  for (int k = 0; k < 2; ++k) {
    ulong y = origin.y + (transpose ? c + k : r), x = origin.x + (transpose ? r : c + k);
    d.e[k] = src[y * ld + x];
  }
}
template <class T, class S>
inline void simdgroup_store(msl_m8<T> a, S dst, ulong ld = 8, ulong2 origin = (ulong2)0,
                            bool transpose = false, MSL_AT) {
  static_assert(sizeof(*dst) == sizeof(T), "simdgroup_store: element types differ");
  ushort r, c;
  a.where(r, c);
  msl_exchange(msl_one{0}, mslrt::k_matrix_store, line, file);
  for (int k = 0; k < 2; ++k) {
    ulong y = origin.y + (transpose ? c + k : r), x = origin.x + (transpose ? r : c + k);
    dst[y * ld + x] = a.e[k];
  }
}
struct msl_pairs {
  float v[4];
};
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(thread msl_m8<D>& d, thread msl_m8<A>& a,
                                          thread msl_m8<B>& b, thread msl_m8<C>& c, MSL_AT) {
  const msl_pairs in = {{(float)a.e[0], (float)a.e[1], (float)b.e[0], (float)b.e[1]}};
  const msl_pairs* all = msl_exchange(in, mslrt::k_matrix_multiply, line, file).value;
  ushort r, col;
  d.where(r, col);
  float s0 = (float)c.e[0], s1 = (float)c.e[1];
  for (uint k = 0; k < 8; ++k) {
    const float av = all[d.lane_of(r, k)].v[k & 1];
    const msl_pairs* bv = &all[d.lane_of(k, col)];
    s0 += av * bv->v[2];
    s1 += av * bv->v[3];
  }
  d.e[0] = (D)s0;
  d.e[1] = (D)s1;
}
template <class D, class A, class B>
inline void simdgroup_multiply(thread msl_m8<D>& d, thread msl_m8<A>& a, thread msl_m8<B>& b,
                               MSL_AT) {
  msl_m8<D> z = make_filled_simdgroup_matrix<D>((D)0);
  simdgroup_multiply_accumulate(d, a, b, z, line, file);
}

}  // namespace metal
