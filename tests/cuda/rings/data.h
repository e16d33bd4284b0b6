// Operands of the rings' test, and plain loops in the registered orders (specs/011 section 1).
#pragma once
#include <cstdint>
#include <type_traits>

#include "cuda/ring_fused.h"

// ---------------------------------------------------------------- random operands

inline uint32_t hash(uint64_t i, uint32_t seed) {
  uint64_t z = i * 0x9e3779b97f4a7c15ull + (uint64_t(seed) << 32 | seed * 2654435761u);
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return uint32_t(z ^ z >> 31);
}
// A float of few binades, and a zero of either sign now and then.
inline float value(uint64_t i, uint32_t seed) {
  const uint32_t h = hash(i, seed);
  if (h % 61 == 0) return h >> 20 & 1 ? -0.0f : 0.0f;
  return __uint_as_float(h << 31 | (124 + (h >> 1) % 4) << 23 | (h >> 4 & 0x7fffff));
}

// Memory of n values, `shift` of them behind a multiple of 128 bytes, with room around that keeps
// its bits.
template <class T>
class Array {
 public:
  Array() = default;
  Array(size_t n, unsigned shift) : n_(n), bytes_(n * sizeof(T) + 1024, char(0x7b)) {
    at_ = (size_t(bytes_.data()) + 255) / 128 * 128 - size_t(bytes_.data()) + shift * sizeof(T);
  }
  T* data() { return n_ ? (T*)(bytes_.data() + at_) : nullptr; }
  T& operator[](size_t i) { return data()[i]; }
  size_t size() const { return n_; }
  bool kept() const {
    const size_t end = at_ + n_ * sizeof(T);
    for (size_t i = 0; i < bytes_.size(); ++i)
      if ((i < at_ || i >= end) && bytes_[i] != 0x7b) return false;
    return true;
  }
  emu::Range range(bool early) {
    return {(const char*)data(), (const char*)data() + n_ * sizeof(T), early};
  }

 private:
  size_t n_ = 0, at_ = 0;
  std::vector<char> bytes_;
};

// What planes hold: as checkpoints have them; or, in every fourth group, zeros of both signs, tiny
// and great values of any sign, for which the fast way is not good.
enum class Planes { usual, odd };

inline u16 to_f16(float v) {
  return __builtin_bit_cast(u16, _Float16(v));
}
inline float of_f16(u16 v) {
  return float(__builtin_bit_cast(_Float16, v));
}
inline u16 to_bf16(float v) {  // cut off: any bits do
  return u16(__float_as_uint(v) >> 16);
}
inline float of_bf16(u16 v) {
  return __uint_as_float(uint32_t(v) << 16);
}
inline float odd_scale(uint32_t h) {
  if (h % 8 == 0) return h >> 9 & 1 ? -0.0f : 0.0f;
  return (h >> 8 & 1 ? -1.0f : 1.0f) *
         std::ldexp(float(1024 + (h >> 12) % 1024), int(h >> 4) % 20 - 34);
}

// Weights [N, K] of a format: what the kernel gets, and each as a float.
template <class F>
struct Weights {
  typedef typename F::P P;
  enum : unsigned { kBits = F::format().bits, kPlanes = F::format().planes };
  unsigned K, N;
  Array<typename F::W> w;
  Array<typename P::T> scales, offsets;
  std::vector<float> wide;

  Weights(unsigned k, unsigned n, bool zeros, Planes planes, unsigned shift, uint32_t seed)
      : K(k), N(n) {
    const size_t count = size_t(K) * N, groups = kPlanes ? count / 32 : 0;
    w = {count * kBits / 8 / sizeof(typename F::W), shift};
    scales = {groups, shift}, offsets = {kPlanes > 1 ? groups : 0, shift};
    wide.resize(count);
    for (size_t g = 0; g < groups; ++g) fill_group(g, zeros, planes, seed);
    for (size_t i = 0; i < count; ++i) wide[i] = fill(i, zeros, seed);
  }

 private:
  static constexpr bool kBf16 = std::is_same_v<F, WeightBf16> || std::is_same_v<P, AsBf16>;
  static float plane(float v) { return v; }
  static float plane(u16 v) { return kBf16 ? of_bf16(v) : of_f16(v); }
  static typename P::T stored(float v) {
    if constexpr (sizeof(typename P::T) == 4) return v;
    else return kBf16 ? to_bf16(v) : to_f16(v);
  }
  void fill_group(size_t g, bool zeros, Planes planes, uint32_t seed) {
    const uint32_t h = hash(g, seed + 1);
    const bool odd = planes == Planes::odd && h % 4 == 0;
    scales[g] =
        stored(odd ? odd_scale(hash(g, seed + 2)) : std::fabs(value(g, seed + 2)) / 64 + 0.001f);
    if (kPlanes < 2) return;
    const uint32_t o = hash(g, seed + 3);
    offsets[g] = stored(odd ? odd_scale(o) : zeros ? float(1 + o % 15) : value(g, seed + 3));
  }
  float fill(size_t i, bool zeros, uint32_t seed) {
    const uint32_t h = hash(i, seed + 4);
    const float v = value(i, seed + 4);
    if constexpr (kBits == 32) {
      return w[i] = v;
    } else if constexpr (kBits == 16) {
      w[i] = kBf16 ? to_bf16(v) : to_f16(v);
      return kBf16 ? of_bf16(w[i]) : of_f16(w[i]);
    } else if constexpr (kBits == 8) {
      w[i] = (signed char)(h % 255 - 127);
      return plane(scales[i / 32]) * float(w[i]);
    } else {
      const unsigned at = 4 * (i % 8), code = h & 15;
      w[i / 8] = (w[i / 8] & ~(15u << at)) | code << at;
      const float s = plane(scales[i / 32]), o = plane(offsets[i / 32]);
      if (!zeros) return std::fma(s, float(code), o);
      return s == 0.0f ? o : (float(code) - o) * s;
    }
  }
};

// ---------------------------------------------------------------- orders

// Lane i has the values i, i + 16 and so on; lanes meet by halves.
inline float lane16(const float* x, const float* w, unsigned K) {
  float a[16] = {};
  for (unsigned k = 0; k < K; ++k) a[k % 16] = std::fma(x[k], w[k], a[k % 16]);
  for (int h = 8; h > 0; h /= 2)
    for (int i = 0; i < h; ++i) a[i] = a[i] + a[i + h];
  return a[0];
}
inline float rounded(float v, unsigned activations) {
  if (activations == 0) return v;
  if (activations == 1) return of_f16(to_f16(v));
  const uint32_t b = __float_as_uint(v);
  return v != v ? v : __uint_as_float((b + 0x7fff + (b >> 16 & 1)) & 0xffff0000u);
}
// Equal bits; a NaN has none of its own.
inline bool equal(float a, float b) {
  return __float_as_uint(a) == __float_as_uint(b) || (a != a && b != b);
}
