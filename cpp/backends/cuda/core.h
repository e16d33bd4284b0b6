// What a CUDA device shares with its queues and programs.
#pragma once
#include <mutex>

#include "backends/cuda/context.h"
#include "exec/worker_queue.h"

namespace accel::cuda {

class Modules;
class Transfer;

// Memory of the host that the device copies from and to. Owned by whoever copies, until the copy is
// over.
using Pinned = std::shared_ptr<void>;

class Core : public WorkerHost {
 public:
  Core(const Driver& api, CUdevice device, const CudaOptions& options, int64_t max_bytes);
  ~Core() override;

  // Retained at the first call that needs it. Throws the error of the driver.
  std::shared_ptr<Context> context();
  // Device memory by plain allocation.
  std::shared_ptr<void> allocate(int64_t bytes, const std::string& what) override;
  // Not cleared. Throws out_of_memory.
  Pinned pin(int64_t bytes);
  void start() override { context(); }
  void enter_worker() override {}
  // Sleeping and waking cost some 50 us, and a step of a small model takes a millisecond or two.
  int64_t spin_ns() const override { return kSpinNs; }
  // Of the device, as its context says; 0 without one.
  int64_t free_bytes();

  Modules& modules() { return *modules_; }
  Transfer& transfer() { return *transfer_; }

  static constexpr int64_t kSpinNs = 2000000;
  const Driver& api;
  const CUdevice device;
  const CudaOptions options;  // overlap: only where the device can

 private:
  std::mutex mutex_;
  std::shared_ptr<Context> context_;
  const std::unique_ptr<Modules> modules_;
  const std::unique_ptr<Transfer> transfer_;
};

// An address of the device, as the layers above carry it.
inline CUdeviceptr device_pointer(const void* address) {
  return CUdeviceptr(reinterpret_cast<uintptr_t>(address));
}

}  // namespace accel::cuda
