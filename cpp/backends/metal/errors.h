// What Metal says went wrong, as errors of the library.
#pragma once
#include <optional>

#include "backends/metal/core.h"
#include "base/error.h"

namespace accel::metal {

// A shader text that was refused; the first place in `log` that names the file gives the line.
Error compile_error(const std::string& file, const std::string& log);
// How a command buffer that is over went. Loses the device where it is gone.
std::optional<Error> error_of(MTL::CommandBuffer* buffer, Core& core);

}  // namespace accel::metal
