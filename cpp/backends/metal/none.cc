// In a build without the Metal backend.
#include "backends/metal/device.h"

namespace accel {

static const char kNone[] = "this build holds no Metal backend";

void find_metal(Enumeration& found) {
  found.notes.push_back({"metal", "build", kNone});
}

DevicePtr open_metal(const MetalOptions&) {
  throw device_error(std::string("open_metal: ") + kNone, "no_adapter");
}

void replace_shader(const std::string&, const std::string&) {
  throw unsupported_error(std::string("replace_shader: ") + kNone);
}

}  // namespace accel
