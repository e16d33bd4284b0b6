// Writes reports. What the system refuses comes as filesystem_error with its code and path, which
// Python sees as an OSError.
#pragma once
#include <string>

namespace accel {

void write_file(const std::string& path, const std::string& text);

}  // namespace accel
