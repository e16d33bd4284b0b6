#include "backends/cuda/context.h"

#include "exec/fork.h"

namespace accel::cuda {

std::shared_ptr<Context> Context::retain(const Driver& api, CUdevice device, CUresult* result) {
  CUcontext handle = nullptr;
  *result = api.DevicePrimaryCtxRetain(&handle, device);
  if (*result) return nullptr;
  return std::shared_ptr<Context>(new Context(api, device, handle));
}

// A forked child has no context: the driver does not survive a fork.
Context::~Context() {
  if (!forked()) api.DevicePrimaryCtxRelease(device);
}

}  // namespace accel::cuda
