// <metal_type_traits>, <metal_limits>: what kernels use of them.
#pragma once
#include "msl_hooks.h"

namespace mslrt {
template <bool B, class T, class F>
struct cond {
  typedef T type;
};
template <class T, class F>
struct cond<false, T, F> {
  typedef F type;
};
template <bool B, class T>
struct enable {};
template <class T>
struct enable<true, T> {
  typedef T type;
};
}  // namespace mslrt

namespace metal {

template <class T, T V>
struct integral_constant {
  static constexpr T value = V;
  typedef T value_type;
  constexpr operator T() const { return V; }
};
template <bool B>
using bool_constant = integral_constant<bool, B>;
typedef integral_constant<bool, true> true_type;
typedef integral_constant<bool, false> false_type;
template <bool B, class T, class F>
using conditional_t = typename mslrt::cond<B, T, F>::type;
template <bool B, class T, class F>
using conditional = mslrt::cond<B, T, F>;
template <bool B, class T = void>
using enable_if_t = typename mslrt::enable<B, T>::type;
template <bool B, class T = void>
using enable_if = mslrt::enable<B, T>;
template <class A, class B>
struct is_same : false_type {};
template <class A>
struct is_same<A, A> : true_type {};
template <class A, class B>
constexpr bool is_same_v = is_same<A, B>::value;

template <class T>
struct remove_addrspace {
  typedef T type;
};
#ifdef MSL_LINT
template <class T>
struct remove_addrspace<device T> {
  typedef T type;
};
template <class T>
struct remove_addrspace<threadgroup T> {
  typedef T type;
};
#endif
template <class T>
using remove_addrspace_t = typename remove_addrspace<T>::type;
template <class T>
using remove_cv_t = __remove_cv(T);
template <class T>
using remove_reference_t = __remove_reference_t(T);
template <class T>
using decay_t = __decay(T);

template <class T>
constexpr bool is_floating_point_v =
    is_same_v<T, float> || is_same_v<T, half> || is_same_v<T, bfloat>;
template <class T>
constexpr bool is_integral_v = !is_floating_point_v<T> && __is_integral(T);
template <class T>
struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T>
struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T>
constexpr bool is_arithmetic_v = is_floating_point_v<T> || is_integral_v<T>;
template <class T>
struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};
template <class T>
constexpr bool is_unsigned_v = is_integral_v<T> && __is_unsigned(T);
template <class T>
struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
template <class T>
constexpr bool is_signed_v = is_arithmetic_v<T> && !__is_unsigned(T);
template <class T>
struct is_signed : bool_constant<is_signed_v<T>> {};
template <class A, class B>
constexpr bool is_convertible_v = __is_convertible(A, B);
template <class A, class B>
struct is_convertible : bool_constant<is_convertible_v<A, B>> {};
template <class T>
constexpr bool is_class_v = __is_class(T);
template <class T>
constexpr bool is_const_v = __is_const(T);
template <class T>
constexpr bool is_pointer_v = __is_pointer(T);
template <class T>
T&& declval();

template <class T>
using uniform = T;
template <class T>
inline T make_uniform(T v) {
  return v;
}

template <class T>
struct numeric_limits {  // integers
  static constexpr bool is_signed = (T)-1 < (T)0;
  static constexpr T max() {
    return is_signed ? (T)(((ulong)1 << (sizeof(T) * 8 - 1)) - 1) : (T)-1;
  }
  static constexpr T lowest() { return is_signed ? (T)(-(long)max() - 1) : (T)0; }
  static constexpr T min() { return lowest(); }
};
#define MSL_LIMITS(T, big, small, eps)      \
  template <>                               \
  struct numeric_limits<T> {                \
    static constexpr bool is_signed = true; \
    static constexpr T max() {              \
      return (T)(big);                      \
    }                                       \
    static constexpr T min() {              \
      return (T)(small);                    \
    }                                       \
    static constexpr T lowest() {           \
      return (T) - (big);                   \
    }                                       \
    static constexpr T epsilon() {          \
      return (T)(eps);                      \
    }                                       \
    static constexpr T infinity() {         \
      return (T)__builtin_inff();           \
    }                                       \
    static constexpr T quiet_NaN() {        \
      return (T)__builtin_nanf("");         \
    }                                       \
  };
MSL_LIMITS(float, __FLT_MAX__, __FLT_MIN__, __FLT_EPSILON__)
MSL_LIMITS(half, 65504.0f, 6.103515625e-5f, 0.0009765625f)
MSL_LIMITS(bfloat, 3.38953139e38f, 1.17549435e-38f, 0.0078125f)

}  // namespace metal
