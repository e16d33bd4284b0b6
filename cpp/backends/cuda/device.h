// What the CUDA backend says of this machine. open_cuda() is declared in exec/device.h. A build
// without it has the same functions (none.cc).
#pragma once
#include "exec/device.h"

namespace accel {

// The GPUs, and notes where there is none. Makes no context.
void find_cuda(Enumeration& found);

}  // namespace accel
