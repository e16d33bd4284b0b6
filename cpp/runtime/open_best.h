// Chooses a device by a stated policy and says why better-liked backends were passed over
// (CONTRACT 3.1).
#pragma once
#include <string>
#include <vector>

#include "exec/device.h"

namespace accel {

struct LimitRule {
  std::string name;
  bool at_least = true;  // otherwise at most
  int64_t value = 0;
};

struct BestOptions {
  std::vector<std::string> prefer = {"metal", "cuda", "cpu"};
  bool allow_cpu = true;
  bool allow_software = false;       // software adapters of GPU backends
  std::vector<std::string> require;  // capabilities
  std::vector<LimitRule> limits;
};

// The device's passed_over holds one note for each better-liked backend. Throws attr_error for an
// unknown backend name, device_error no_adapter when nothing is enumerated and policy when all are
// rejected.
DevicePtr open_best(const BestOptions& options = {});

// Why the policy refuses the device, or empty.
std::string refusal_of(const DeviceInfo& info, const BestOptions& options);

}  // namespace accel
