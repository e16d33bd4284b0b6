// A queue of a Metal device: a worker that encodes, and a command queue that runs what it commits.
#pragma once
#include "backends/metal/core.h"

namespace accel::metal {

// The command queue of one worker. Its buffers are untracked and its encoders run as they can, so
// each waits for the fence of the one before it.
struct Stream {
  // Throws a device error where the driver gives none.
  explicit Stream(Core& core);
  Ref<MTL::CommandQueue> queue;
  Ref<MTL::Fence> fence;
  bool used = false;  // the fence has been updated; the worker's own
};

class MetalQueue : public WorkerQueue {
 public:
  MetalQueue(DevicePtr device, std::shared_ptr<Worker> worker, std::shared_ptr<Core> core,
             const std::string& label, bool counted, std::shared_ptr<Stream> of)
      : WorkerQueue(std::move(device), std::move(worker), std::move(core), label, counted),
        stream(std::move(of)) {}
  const std::shared_ptr<Stream> stream;
};

}  // namespace accel::metal
