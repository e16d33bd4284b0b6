#include "runtime/buckets.h"

#include <algorithm>

#include "base/error.h"
#include "base/shape.h"

namespace accel {

Buckets::Buckets(std::vector<int64_t> sizes) : sizes_(std::move(sizes)) {
  const auto refuse = [](const std::string& is_and_must) {
    throw attr_error("Buckets", "sizes", "Buckets: sizes " + is_and_must);
  };
  if (sizes_.empty()) refuse("is empty and must hold a size");
  for (const int64_t size : sizes_)
    if (size < 1) refuse("holds " + std::to_string(size) + " and must hold positive sizes only");
  std::sort(sizes_.begin(), sizes_.end());
  const auto twice = std::adjacent_find(sizes_.begin(), sizes_.end());
  if (twice != sizes_.end())
    refuse("holds " + std::to_string(*twice) + " twice and must hold each size once");
}

int64_t Buckets::for_length(int64_t n) const {
  const auto refuse = [&](const std::string& must) {
    throw attr_error("for_length", "n", "for_length: n is " + std::to_string(n) + " and " + must);
  };
  if (sizes_.empty()) refuse("the set holds no size and must hold one");
  if (n < 1) refuse("must be positive");
  const auto at = std::lower_bound(sizes_.begin(), sizes_.end(), n);
  if (at == sizes_.end())
    refuse("must be at most " + std::to_string(sizes_.back()) + ", the largest of " +
           text_of(sizes_));
  return *at;
}

}  // namespace accel
