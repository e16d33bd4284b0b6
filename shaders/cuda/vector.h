// Vectors of two to four elements, with the alignment that Metal gives them: a copy of four floats
// is one load. Each operation is that of the elements.
#pragma once

namespace metal {

template <class T, int N>
struct vec;

template <class T>
struct alignas(2 * sizeof(T)) vec<T, 2> {
  T x, y;
  vec() = default;
  explicit __forceinline__ vec(T s) : x(s), y(s) {}
  __forceinline__ vec(T a, T b) : x(a), y(b) {}
  template <class U>
  explicit __forceinline__ vec(vec<U, 2> v) : x(T(v.x)), y(T(v.y)) {}
  __forceinline__ T operator[](int i) const { return i == 0 ? x : y; }
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 3> {
  T x, y, z;
  vec() = default;
  explicit __forceinline__ vec(T s) : x(s), y(s), z(s) {}
  __forceinline__ vec(T a, T b, T c) : x(a), y(b), z(c) {}
  template <class U>
  explicit __forceinline__ vec(vec<U, 3> v) : x(T(v.x)), y(T(v.y)), z(T(v.z)) {}
  __forceinline__ T operator[](int i) const { return i == 0 ? x : i == 1 ? y : z; }
};

template <class T>
struct alignas(4 * sizeof(T)) vec<T, 4> {
  T x, y, z, w;
  vec() = default;
  explicit __forceinline__ vec(T s) : x(s), y(s), z(s), w(s) {}
  __forceinline__ vec(T a, T b, T c, T d) : x(a), y(b), z(c), w(d) {}
  template <class U>
  explicit __forceinline__ vec(vec<U, 4> v) : x(T(v.x)), y(T(v.y)), z(T(v.z)), w(T(v.w)) {}
  __forceinline__ T operator[](int i) const { return i == 0 ? x : i == 1 ? y : i == 2 ? z : w; }
};

// f of the elements of one, two or three vectors.
template <class T, class F>
__forceinline__ vec<T, 2> each(vec<T, 2> a, vec<T, 2> b, F f) {
  return vec<T, 2>(f(a.x, b.x), f(a.y, b.y));
}
template <class T, class F>
__forceinline__ vec<T, 3> each(vec<T, 3> a, vec<T, 3> b, F f) {
  return vec<T, 3>(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z));
}
template <class T, class F>
__forceinline__ vec<T, 4> each(vec<T, 4> a, vec<T, 4> b, F f) {
  return vec<T, 4>(f(a.x, b.x), f(a.y, b.y), f(a.z, b.z), f(a.w, b.w));
}

template <class T>
struct NotDeduced {
  typedef T type;
};

#define VECTOR_OPERATOR(op)                                                            \
  template <class T, int N>                                                            \
  __forceinline__ vec<T, N> operator op(vec<T, N> a, vec<T, N> b) {                    \
    return each(a, b, [](T x, T y) { return T(x op y); });                             \
  }                                                                                    \
  template <class T, int N>                                                            \
  __forceinline__ vec<T, N> operator op(vec<T, N> a, typename NotDeduced<T>::type b) { \
    return a op vec<T, N>(b);                                                          \
  }                                                                                    \
  template <class T, int N>                                                            \
  __forceinline__ vec<T, N> operator op(typename NotDeduced<T>::type a, vec<T, N> b) { \
    return vec<T, N>(a) op b;                                                          \
  }
VECTOR_OPERATOR(+)
VECTOR_OPERATOR(-)
VECTOR_OPERATOR(*)
VECTOR_OPERATOR(/)
#undef VECTOR_OPERATOR

}  // namespace metal
