// A sorted set of sizes that a length is rounded up to (CONTRACT 22). Never rounds down, never
// guesses.
#pragma once
#include <cstdint>
#include <vector>

namespace accel {

class Buckets {
 public:
  Buckets() = default;  // holds nothing: for_length refuses
  // Copies and sorts. Throws attr_error for no size, one that is not positive, and a duplicate.
  explicit Buckets(std::vector<int64_t> sizes);
  const std::vector<int64_t>& sizes() const { return sizes_; }
  // The smallest size that is n or more. Throws attr_error for n below 1 and above the largest.
  int64_t for_length(int64_t n) const;

 private:
  std::vector<int64_t> sizes_;
};

}  // namespace accel
