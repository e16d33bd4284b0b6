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
  // The row and the first of the two columns that a lane holds.
  static void where_of(ushort l, thread ushort& r, thread ushort& c) {
    ushort q = l / 4;
    r = (q & 4) + ((l / 2) % 4);
    c = (q & 2) * 2 + (l % 2) * 2;
  }
  static void where(thread ushort& r, thread ushort& c) { where_of(mslemu_lane(), r, c); }
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

template <class T, class S>
inline void simdgroup_load(thread msl_m8<T>& d, S src, ulong ld = 8, ulong2 origin = (ulong2)0,
                           bool transpose = false, MSL_AT) {
  static_assert(sizeof(*src) == sizeof(T), "simdgroup_load: element types differ");
  ushort r, c;
  d.where(r, c);
  mslemu_collective(mslrt::k_matrix_load, line, file);
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
  mslemu_collective(mslrt::k_matrix_store, line, file);
  for (int k = 0; k < 2; ++k) {
    ulong y = origin.y + (transpose ? c + k : r), x = origin.x + (transpose ? r : c + k);
    dst[y * ld + x] = a.e[k];
  }
}
// Two elements each of a, b and c. The first lane that comes back computes all of the product: for
// each element c, then the products by rising k, each rounded by itself.
struct msl_pairs {
  float a[2], b[2], c[2];
};
inline void msl_multiply(const thread msl_pairs* in, thread float* out) {
  float a[8][8], b[8][8];
  for (ushort l = 0; l < 32; ++l) {
    ushort r, c;
    simdgroup_matrix<float, 8, 8>::where_of(l, r, c);
    for (ushort k = 0; k < 2; ++k) {
      a[r][c + k] = in[l].a[k];
      b[r][c + k] = in[l].b[k];
      out[r * 8 + c + k] = in[l].c[k];
    }
  }
  for (ushort r = 0; r < 8; ++r)
    for (ushort k = 0; k < 8; ++k)
      for (ushort c = 0; c < 8; ++c) out[r * 8 + c] += a[r][k] * b[k][c];
}
template <class D, class A, class B, class C>
inline void simdgroup_multiply_accumulate(thread msl_m8<D>& d, thread msl_m8<A>& a,
                                          thread msl_m8<B>& b, thread msl_m8<C>& c, MSL_AT) {
  const msl_pairs in = {{(float)a.e[0], (float)a.e[1]},
                        {(float)b.e[0], (float)b.e[1]},
                        {(float)c.e[0], (float)c.e[1]}};
  const msl_lanes<msl_pairs> all = msl_exchange(in, mslrt::k_matrix_multiply, line, file);
  float* product = (float*)all.all->result;
  if (!all.all->reduced) {
    msl_multiply(all.value, product);
    all.all->reduced = 1;
  }
  ushort r, column;
  d.where_of(all.lane, r, column);
  d.e[0] = (D)product[r * 8 + column];
  d.e[1] = (D)product[r * 8 + column + 1];
}
template <class D, class A, class B>
inline void simdgroup_multiply(thread msl_m8<D>& d, thread msl_m8<A>& a, thread msl_m8<B>& b,
                               MSL_AT) {
  msl_m8<D> z = make_filled_simdgroup_matrix<D>((D)0);
  simdgroup_multiply_accumulate(d, a, b, z, line, file);
}

}  // namespace metal
