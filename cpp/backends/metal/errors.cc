#include "backends/metal/errors.h"

#include <cctype>

namespace accel::metal {

// The line that follows "<file>:", or 0.
static int line_in(const std::string& log, const std::string& file) {
  for (size_t at = log.find(file + ":"); at != std::string::npos;
       at = log.find(file + ":", at + 1)) {
    int line = 0;
    for (size_t i = at + file.size() + 1; i < log.size() && std::isdigit(log[i]); ++i)
      line = line * 10 + (log[i] - '0');
    if (line) return line;
  }
  return 0;
}

Error compile_error(const std::string& file, const std::string& log) {
  const Site site(file, line_in(log, file));
  Error e(ErrorKind::compile, "compile",
          "shader " + (site.line ? site.to_string() : file) +
              " does not compile on this device; please report this. The compiler says:\n" + log);
  e.path = file;
  e.site = site;
  return e;
}

static const char* name_of_code(NS::Integer code) {
  switch (MTL::CommandBufferError(code)) {
    case MTL::CommandBufferErrorTimeout:
      return "it took too long and was stopped";
    case MTL::CommandBufferErrorPageFault:
      return "a page fault, an access outside of memory";
    case MTL::CommandBufferErrorAccessRevoked:
      return "this process may no longer use the device";
    case MTL::CommandBufferErrorNotPermitted:
      return "this process may not use the device";
    case MTL::CommandBufferErrorOutOfMemory:
      return "out of memory";
    case MTL::CommandBufferErrorInvalidResource:
      return "a resource that is not valid";
    case MTL::CommandBufferErrorDeviceRemoved:
      return "the device was removed";
    case MTL::CommandBufferErrorStackOverflow:
      return "the stack of a kernel was too small";
    default:
      return "a failure inside of the driver";
  }
}

std::optional<Error> error_of(MTL::CommandBuffer* buffer, Core& core) {
  if (buffer->status() != MTL::CommandBufferStatusError) return std::nullopt;
  const Scope scope;
  NS::Error* error = buffer->error();
  const NS::Integer code = error ? error->code() : 0;
  const std::string what =
      std::string(name_of_code(code)) + " (code " + std::to_string(code) + "): " + text(error);
  if (code == MTL::CommandBufferErrorDeviceRemoved ||
      code == MTL::CommandBufferErrorAccessRevoked) {
    core.lose("because the driver said: " + what);
    return core.lost_error();
  }
  return device_error("the device failed the submission: " + what);
}

}  // namespace accel::metal
