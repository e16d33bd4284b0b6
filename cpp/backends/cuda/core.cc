#include "backends/cuda/core.h"

#include "backends/cuda/errors.h"
#include "backends/cuda/modules.h"
#include "backends/cuda/transfer.h"
#include "exec/fork.h"
#include "exec/memory.h"

namespace accel::cuda {

namespace {

// Frees memory in its context. Where the context cannot be entered any more it is dead, and its
// memory went with it.
struct Free {
  std::shared_ptr<Context> context;
  void operator()(void* address) const {
    if (forked()) return;
    const Current current(*context);
    if (!current.result) context->api.MemFree(device_pointer(address));
  }
};

struct FreePinned {
  std::shared_ptr<Context> context;
  void operator()(void* memory) const {
    if (forked()) return;
    const Current current(*context);
    if (!current.result) context->api.MemFreeHost(memory);
  }
};

}  // namespace

Core::Core(const Driver& a, CUdevice d, const CudaOptions& o, int64_t most)
    : WorkerHost(o.lose_at, most),
      api(a),
      device(d),
      options(o),
      modules_(std::make_unique<Modules>(*this)),
      transfer_(std::make_unique<Transfer>(*this)) {}

Core::~Core() = default;

std::shared_ptr<Context> Core::context() {
  CUresult result = CUDA_SUCCESS;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!context_) context_ = Context::retain(api, device, &result);
    if (context_) return context_;
  }
  throw error_of(result, "cuDevicePrimaryCtxRetain", *this);
}

int64_t Core::free_bytes() {
  std::shared_ptr<Context> held;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    held = context_;
  }
  if (!held) return 0;
  const Current current(*held);
  size_t free = 0, total = 0;
  if (current.result || api.MemGetInfo(&free, &total)) return 0;
  return int64_t(free);
}

std::shared_ptr<void> Core::allocate(int64_t bytes, const std::string& what) {
  check_bytes(bytes, max_bytes, what);
  const std::shared_ptr<Context> held = context();
  const Current current(*held);
  check(current.result, "cuCtxPushCurrent", *this);
  CUdeviceptr address = 0;
  const int64_t size = std::max<int64_t>(bytes, 4);
  const CUresult result =
      allocation_must_fail() ? CUDA_ERROR_OUT_OF_MEMORY : api.MemAlloc(&address, size_t(size));
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    const int64_t free = free_bytes();
    throw capacity_error("out_of_memory",
                         what + " is " + std::to_string(bytes) +
                             " bytes, which the driver refused; " + std::to_string(free) +
                             " bytes of the device are free of " + std::to_string(max_bytes),
                         bytes, free, max_bytes);
  }
  check(result, "cuMemAlloc", *this);
  std::shared_ptr<void> memory(reinterpret_cast<void*>(uintptr_t(address)), Free{held});
  transfer_->zero(memory.get(), size);
  return memory;
}

Pinned Core::pin(int64_t bytes) {
  const std::shared_ptr<Context> held = context();
  const Current current(*held);
  check(current.result, "cuCtxPushCurrent", *this);
  void* memory = nullptr;
  const CUresult result = api.MemHostAlloc(&memory, size_t(bytes), CU_MEMHOSTALLOC_PORTABLE);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    const int64_t free = memory_available(), total = memory_total();
    throw capacity_error("out_of_memory",
                         "pinned memory of the host for copies is " + std::to_string(bytes) +
                             " bytes, which the driver refused; " + std::to_string(free) +
                             " bytes of the host are available of " + std::to_string(total),
                         bytes, free, total);
  }
  check(result, "cuMemHostAlloc", *this);
  return {memory, FreePinned{held}};
}

}  // namespace accel::cuda
