// The primary context of a GPU, which this library shares with everything else in the process that
// uses CUDA's runtime (torch, cupy): memory of theirs is memory of ours.
#pragma once
#include <memory>

#include "backends/cuda/api.h"

namespace accel::cuda {

// Held by everything that lives in the context; it goes back with the last of that.
struct Context {
  // Null, and the driver's answer, where it cannot be had.
  static std::shared_ptr<Context> retain(const Driver& api, CUdevice device, CUresult* result);
  ~Context();
  Context(const Context&) = delete;

  const Driver& api;
  const CUdevice device;
  const CUcontext handle;

 private:
  Context(const Driver& a, CUdevice d, CUcontext h) : api(a), device(d), handle(h) {}
};

// Makes a context the calling thread's own for a scope.
class Current {
 public:
  explicit Current(const Context& context)
      : api_(context.api), result(context.api.CtxPushCurrent(context.handle)) {}
  ~Current() {
    CUcontext popped = nullptr;
    if (!result) api_.CtxPopCurrent(&popped);
  }
  Current(const Current&) = delete;

 private:
  const Driver& api_;

 public:
  const CUresult result;  // anything but success: nothing was changed
};

}  // namespace accel::cuda
