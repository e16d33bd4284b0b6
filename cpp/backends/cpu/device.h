// The CPU device. open_cpu() is declared in exec/device.h; here is what tests and benchmarks need
// besides.
#pragma once
#include "backends/cpu/kernel_api.h"
#include "exec/device.h"

namespace accel {

// open_cpu with a kernel table of the caller's, which must outlive the device, and the digest of
// its kernels; empty: that of the built table for the same instruction set.
DevicePtr open_cpu_with(const accel_cpu::KernelTable& table, const CpuOptions& options,
                        const std::string& digest = "");
// What open_cpu(options) would say of itself. Starts nothing.
DeviceInfo cpu_info(const CpuOptions& options = {});

}  // namespace accel
