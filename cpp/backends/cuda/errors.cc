#include "backends/cuda/errors.h"

namespace accel::cuda {

bool is_sticky(CUresult result) {
  switch (result) {
    case CUDA_ERROR_DEINITIALIZED:
    case CUDA_ERROR_DEVICE_UNAVAILABLE:
    // Each call enters a context that it holds: somebody else has destroyed it.
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_ECC_UNCORRECTABLE:
    case CUDA_ERROR_NVLINK_UNCORRECTABLE:
    case CUDA_ERROR_CONTAINED:
    case CUDA_ERROR_ILLEGAL_ADDRESS:
    case CUDA_ERROR_LAUNCH_TIMEOUT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_ASSERT:
    case CUDA_ERROR_TENSOR_MEMORY_LEAK:
    case CUDA_ERROR_UNKNOWN:
      return true;
    default:
      // Stack, instruction, misaligned, address space, program counter, launch failed.
      return result >= CUDA_ERROR_HARDWARE_STACK_ERROR && result <= CUDA_ERROR_LAUNCH_FAILED;
  }
}

Error error_of(CUresult result, const char* call, Core& core) {
  const std::string what = std::string(call) + " gave " + text_of(core.api, result);
  if (is_sticky(result)) {
    core.lose("because " + what);
    return core.lost_error();
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return capacity_error("out_of_memory", what, 0, core.free_bytes(), core.max_bytes);
  return device_error("the driver failed: " + what);
}

Error compile_error(const std::string& file, const std::string& log) {
  Error e(ErrorKind::compile, "compile",
          "shader " + file +
              " does not compile on this device; please report this. The driver says: " + log);
  e.path = file;
  return e;
}

}  // namespace accel::cuda
