// The set of all memory of a device, kept resident where the system offers that (macOS 15): a
// submission then need not make it so.
#pragma once
#include <atomic>
#include <mutex>

#include "backends/metal/objects.h"

namespace accel::metal {

class Residency {
 public:
  explicit Residency(MTL::Device* device);
  ~Residency();
  // Both count from the next commit() on, so that a load of many buffers costs one. What leaves is
  // held until then, but never much of it.
  void add(const MTL::Buffer* buffer);
  void remove(const MTL::Buffer* buffer);
  // Before a submission, and when a program has been made.
  void commit();
  void attach(MTL::CommandQueue* queue);

 private:
  void commit_locked();
  std::mutex mutex_;
  Ref<MTL::ResidencySet> set_;  // null: the system offers none
  std::atomic<bool> changed_{false};
  uint64_t leaving_ = 0;  // bytes removed since the last commit
  bool requested_ = false;
};

}  // namespace accel::metal
