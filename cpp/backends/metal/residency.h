// The set of all memory of a device, kept resident where the system offers that (macOS 15): a
// submission then need not make it so.
#pragma once
#include <mutex>

#include "backends/metal/objects.h"

namespace accel::metal {

class Residency {
 public:
  explicit Residency(MTL::Device* device);
  ~Residency();
  void add(const MTL::Buffer* buffer);
  void remove(const MTL::Buffer* buffer);
  void attach(MTL::CommandQueue* queue);

 private:
  std::mutex mutex_;
  Ref<MTL::ResidencySet> set_;  // null: the system offers none
};

}  // namespace accel::metal
