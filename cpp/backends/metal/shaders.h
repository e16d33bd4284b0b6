// The shader texts that the build has embedded (tools/embed_shaders.py).
#pragma once
#include <string>

namespace accel {

struct Shader {
  const char* file;  // below shaders/
  std::string text;  // with its includes in their places
};
// The text that holds a function. Throws an internal error for one that none holds.
Shader shader_of(const std::string& function);
// Of all texts, and of what tests put in their places.
std::string shader_digest();

}  // namespace accel
