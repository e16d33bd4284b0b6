#include "backends/metal/shaders.h"

#include <map>
#include <mutex>

#include "base/sha256.h"
#include "exec/device.h"

namespace accel {

namespace {

namespace built {
struct Shader {
  const char *file, *text;
};
struct ShaderFunction {
  const char* name;
  int file;
};
#include "shaders.inc"
}  // namespace built

std::mutex& mutex() {
  static std::mutex* m = new std::mutex;
  return *m;
}
std::map<std::string, std::string>& replaced() {
  static auto* texts = new std::map<std::string, std::string>;
  return *texts;
}

}  // namespace

void replace_shader(const std::string& file, const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex());
  if (text.empty()) replaced().erase(file);
  else replaced()[file] = text;
}

Shader shader_of(const std::string& function) {
  for (const built::ShaderFunction& f : built::kFunctions) {
    if (function != f.name) continue;
    const built::Shader& shader = built::kShaders[f.file];
    std::lock_guard<std::mutex> lock(mutex());
    const auto at = replaced().find(shader.file);
    return {shader.file, at == replaced().end() ? shader.text : at->second};
  }
  throw Error(ErrorKind::internal, "internal",
              "shader function " + function + " is missing; please report this");
}

std::string shader_digest() {
  std::lock_guard<std::mutex> lock(mutex());
  if (replaced().empty()) return built::kDigest;
  std::string all = built::kDigest;
  for (const auto& [file, text] : replaced()) all += file + "\n" + text;
  return hex_of(sha256(all));
}

}  // namespace accel
