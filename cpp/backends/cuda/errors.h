// What the driver's answers mean for whoever called the library.
#pragma once
#include "backends/cuda/core.h"

namespace accel::cuda {

// The context is gone, and with it the device until the process opens it anew.
bool is_sticky(CUresult result);

// The error of an answer that is no success: out of memory is a capacity error and harms nothing
// else; what kills the context loses the device; the rest is the driver's refusal.
Error error_of(CUresult result, const char* call, Core& core);
// Throws it.
inline void check(CUresult result, const char* call, Core& core) {
  if (result) throw error_of(result, call, core);
}

// Of a module that the driver's compiler refused.
Error compile_error(const std::string& file, const std::string& log);

}  // namespace accel::cuda
