// Shapes and strides in elements: outermost axis first, the last axis fastest.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace accel {

class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) : dims_(dims) {}
  explicit Shape(std::vector<int64_t> dims) : dims_(std::move(dims)) {}

  int rank() const { return int(dims_.size()); }
  int64_t operator[](int axis) const { return dims_[size_t(axis)]; }
  int64_t& operator[](int axis) { return dims_[size_t(axis)]; }
  int64_t back() const { return dims_.back(); }
  const std::vector<int64_t>& dims() const { return dims_; }
  auto begin() const { return dims_.begin(); }
  auto end() const { return dims_.end(); }
  // Product of the extents, 1 for rank 0. Declared shapes never overflow: check with fits() first.
  int64_t elements() const;
  // False when the product exceeds 2^63 - 1.
  bool fits() const;
  Shape with_back(int64_t last) const;
  // "[4 8]"
  std::string to_string() const;
  bool operator==(const Shape&) const = default;

 private:
  std::vector<int64_t> dims_;
};

using Strides = std::vector<int64_t>;

Strides contiguous_strides(const Shape& shape);
// Offset 0 and the suffix products of the shape; axes of extent 1 do not count.
bool is_contiguous(const Shape& shape, const Strides& strides, int64_t offset);
// The text of any integer list, "[4 8]".
std::string text_of(const std::vector<int64_t>& values);

// The type of a value: "f32[4 8]".
struct Type {
  DType dtype = DType::F32;
  Shape shape;
  int64_t bytes() const { return shape.elements() * size_of(dtype); }
  std::string to_string() const { return std::string(name_of(dtype)) + shape.to_string(); }
  bool operator==(const Type&) const = default;
};

}  // namespace accel
