#include "backends/metal/residency.h"

namespace accel::metal {

// Of memory that is gone for its owner and not yet for the system.
static constexpr uint64_t kMostHeld = uint64_t(64) << 20;

Residency::Residency(MTL::Device* device) {
  if (!responds(device, "newResidencySetWithDescriptor:error:")) return;
  const Scope scope;
  const auto descriptor = adopt(MTL::ResidencySetDescriptor::alloc()->init());
  NS::Error* error = nullptr;
  // Without one everything works, at a cost for each submission.
  set_ = adopt(device->newResidencySet(descriptor.get(), &error));
}

Residency::~Residency() {
  if (set_ && requested_) set_->endResidency();
}

void Residency::add(const MTL::Buffer* buffer) {
  if (!set_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  set_->addAllocation(buffer);
  changed_.store(true, std::memory_order_release);
}

void Residency::remove(const MTL::Buffer* buffer) {
  if (!set_) return;
  const Scope scope;  // on whatever thread drops the buffer
  std::lock_guard<std::mutex> lock(mutex_);
  set_->removeAllocation(buffer);
  changed_.store(true, std::memory_order_release);
  leaving_ += buffer->length();
  if (leaving_ >= kMostHeld) commit_locked();
}

void Residency::commit() {
  if (!changed_.load(std::memory_order_acquire)) return;
  const Scope scope;
  std::lock_guard<std::mutex> lock(mutex_);
  commit_locked();
}

void Residency::commit_locked() {
  changed_.store(false, std::memory_order_release);
  leaving_ = 0;
  set_->commit();
  // Once: a set that is resident makes so what later commits add.
  if (!requested_) set_->requestResidency();
  requested_ = true;
}

void Residency::attach(MTL::CommandQueue* queue) {
  if (set_) queue->addResidencySet(set_.get());
}

}  // namespace accel::metal
