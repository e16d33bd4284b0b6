// Finding and opening devices. Enumeration starts no thread and makes no context of a driver.
#include "backends/cpu/device.h"
#include "backends/cuda/device.h"
#include "backends/metal/device.h"
#include "exec/fork.h"

namespace accel {

Enumeration enumerate_devices() {
  check_fork();
  Enumeration e;
  e.devices.push_back(cpu_info());
  find_metal(e);
  find_cuda(e);
  return e;
}

DevicePtr open_device(const std::array<uint8_t, 16>& id) {
  if (id == cpu_info().id) return open_cpu();
  Enumeration metal;
  find_metal(metal);
  MetalOptions options;
  for (const DeviceInfo& info : metal.devices) {
    if (info.id == id) return open_metal(options);
    ++options.index;
  }
  Enumeration cuda;
  find_cuda(cuda);
  CudaOptions gpu;
  for (const DeviceInfo& info : cuda.devices) {
    if (info.id == id) return open_cuda(gpu);
    ++gpu.index;
  }
  throw device_error(
      "open_device: id is of no adapter of this machine and must be one of enumerate_devices()",
      "no_adapter");
}

}  // namespace accel
