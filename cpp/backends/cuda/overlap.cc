#include "backends/cuda/overlap.h"

#include <algorithm>

#include "base/error.h"

namespace accel::cuda {

// The first with griddepcontrol, and the first driver with edges that carry data.
static constexpr int64_t kCapability = 90;
static constexpr int64_t kDriver = 12030;
static const char kVersion[] = "7.8", kTarget[] = "sm_90";

std::string plain_edges_because(const Driver& api, int64_t capability, int64_t driver_version) {
  if (capability < kCapability)
    return "the device is sm_" + std::to_string(capability) + " and must be " + kTarget +
           " or newer for nodes that overlap";
  if (driver_version < kDriver)
    return "the driver is of CUDA " + std::to_string(driver_version / 1000) + "." +
           std::to_string(driver_version % 1000 / 10) +
           " and must be of CUDA 12.3 or newer for nodes that overlap";
  if (!api.GraphAddDependencies) return "the driver lacks cuGraphAddDependencies_v2";
  return "";
}

// How often `what` stood there.
static int replace_all(std::string& text, const std::string& what, const std::string& by) {
  int n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
    ++n;
  }
  return n;
}

std::string overlapped(std::string ptx) {
  // Texts of a later version keep it; all are of the oldest target (tools/cuda_shaders.py).
  if (ptx.starts_with(".version 7.0\n")) ptx.replace(9, 3, kVersion);
  const int targets =
      replace_all(ptx, "\n.target sm_80\n", std::string("\n.target ") + kTarget + "\n");
  const int waits = replace_all(ptx, "//accel: wait for earlier grids", "griddepcontrol.wait;");
  replace_all(ptx, "//accel: later grids may start", "griddepcontrol.launch_dependents;");
  replace_all(ptx, "ld.global.nc.", "ld.global.");
  if (targets != 1 || waits == 0)
    throw Error(ErrorKind::internal, "internal",
                "a kernel does not say where it waits for earlier ones; please report this");
  return ptx;
}

}  // namespace accel::cuda
