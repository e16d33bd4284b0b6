#include "base/shape.h"

namespace accel {

int64_t Shape::elements() const {
  int64_t n = 1;
  for (int64_t d : dims_) n *= d;
  return n;
}

bool Shape::fits() const {
  int64_t n = 1;
  for (int64_t d : dims_)
    if (__builtin_mul_overflow(n, d, &n)) return false;
  return true;
}

Shape Shape::with_back(int64_t last) const {
  Shape s = *this;
  s.dims_.back() = last;
  return s;
}

std::string text_of(const std::vector<int64_t>& values) {
  std::string s = "[";
  for (size_t i = 0; i < values.size(); ++i) s += (i ? " " : "") + std::to_string(values[i]);
  return s + "]";
}

std::string Shape::to_string() const {
  return text_of(dims_);
}

Strides contiguous_strides(const Shape& shape) {
  Strides s(size_t(shape.rank()));
  int64_t n = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) s[size_t(i)] = n, n *= shape[i];
  return s;
}

bool is_contiguous(const Shape& shape, const Strides& strides, int64_t offset) {
  if (offset != 0) return false;
  int64_t n = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[size_t(i)] != n) return false;
    n *= shape[i];
  }
  return true;
}

}  // namespace accel
