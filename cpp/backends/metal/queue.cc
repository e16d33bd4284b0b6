#include "backends/metal/queue.h"

namespace accel::metal {

Stream::Stream(Core& core) {
  const Scope scope;
  queue = adopt(core.device->newCommandQueue());
  fence = adopt(core.device->newFence());
  if (!queue || !fence) throw device_error("the driver gave no command queue");
  core.residency->attach(queue.get());
}

}  // namespace accel::metal
