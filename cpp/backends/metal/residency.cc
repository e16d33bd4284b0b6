#include "backends/metal/residency.h"

namespace accel::metal {

Residency::Residency(MTL::Device* device) {
  if (!responds(device, "newResidencySetWithDescriptor:error:")) return;
  const Scope scope;
  const auto descriptor = adopt(MTL::ResidencySetDescriptor::alloc()->init());
  NS::Error* error = nullptr;
  // Without one everything works, at a cost for each submission.
  set_ = adopt(device->newResidencySet(descriptor.get(), &error));
  if (set_) set_->requestResidency();
}

Residency::~Residency() {
  if (set_) set_->endResidency();
}

void Residency::add(const MTL::Buffer* buffer) {
  if (!set_) return;
  std::lock_guard<std::mutex> lock(mutex_);
  set_->addAllocation(buffer);
  set_->commit();
}

void Residency::remove(const MTL::Buffer* buffer) {
  if (!set_) return;
  const Scope scope;  // on whatever thread drops the buffer
  std::lock_guard<std::mutex> lock(mutex_);
  set_->removeAllocation(buffer);
  set_->commit();
}

void Residency::attach(MTL::CommandQueue* queue) {
  if (set_) queue->addResidencySet(set_.get());
}

}  // namespace accel::metal
