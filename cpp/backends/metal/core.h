// What a Metal device shares with its queues and programs.
#pragma once
#include "backends/metal/objects.h"
#include "backends/metal/pipelines.h"
#include "backends/metal/residency.h"
#include "exec/fork.h"
#include "exec/worker_queue.h"

namespace accel::metal {

class Core : public WorkerHost {
 public:
  // Throws a capacity error where not even the dummy operand can be made.
  Core(Ref<MTL::Device> device, const MetalOptions& options);
  // Shared with the host, untracked: the plan places every barrier.
  std::shared_ptr<void> allocate(int64_t bytes, const std::string& what) override;
  void start() override {}
  void enter_worker() override {}
  int64_t spin_ns() const override { return 50000; }

  const Ref<MTL::Device> device;
  const MetalOptions options;
  const std::shared_ptr<Residency> residency;
  Pipelines pipelines;
  std::shared_ptr<void> dummy;  // what absent operands are bound to
};

// Owns an object with things of the driver. A forked child has neither its threads nor its
// connections and may only drop objects, so there it is left as it is.
template <class T>
std::shared_ptr<T> own(T* object) {
  return {object, [](T* o) {
            if (!forked()) delete o;
          }};
}

// The length of a buffer for so many bytes.
inline NS::UInteger whole_words(int64_t bytes) {
  return NS::UInteger(std::max<int64_t>((bytes + 3) / 4, 1) * 4);
}
// The MTLBuffer of memory that Core::allocate gave.
MTL::Buffer* buffer_of(const std::shared_ptr<void>& memory);

}  // namespace accel::metal
