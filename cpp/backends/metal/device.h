// What the Metal backend says of this machine. open_metal() is declared in exec/device.h. A build
// without it has the same functions (none.cc).
#pragma once
#include "exec/device.h"

namespace accel {

// The adapters, and notes where there is none.
void find_metal(Enumeration& found);

}  // namespace accel
