#include "runtime/files.h"

#include <cerrno>
#include <cstdio>
#include <filesystem>

namespace accel {

void write_file(const std::string& path, const std::string& text) {
  std::FILE* f = std::fopen(path.c_str(), "wb");
  bool good = f && std::fwrite(text.data(), 1, text.size(), f) == text.size();
  int code = errno;
  if (f && std::fclose(f) != 0 && good) good = false, code = errno;
  if (!good)
    throw std::filesystem::filesystem_error("cannot be written", path,
                                            std::error_code(code, std::generic_category()));
}

}  // namespace accel
