#include <dlfcn.h>
#include <unistd.h>

#include <mutex>

#include "backends/cuda/api.h"

namespace accel::cuda {

static const char kLibrary[] = "libcuda.so.1";

// The library and its functions; false: what is missing.
static bool load(Driver& api, Absence& absence) {
  // Never closed: the driver's threads live in it.
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    absence = {"load", why ? why : std::string(kLibrary) + " was not found"};
    return false;
  }
  const auto find = [&](auto& function, const char* name, bool needed) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    if (!function && needed && absence.why.empty())
      absence = {"load", std::string(kLibrary) + " lacks " + name +
                             ": the driver is too old and must be of CUDA 12.0 or newer"};
  };
#define ACCEL_CUDA_FIND(name, suffix, parameters) find(api.name, "cu" #name #suffix, true);
  ACCEL_CUDA_FUNCTIONS(ACCEL_CUDA_FIND)
#undef ACCEL_CUDA_FIND
#define ACCEL_CUDA_FIND(name, suffix, parameters) find(api.name, "cu" #name #suffix, false);
  ACCEL_CUDA_LATER_FUNCTIONS(ACCEL_CUDA_FIND)
#undef ACCEL_CUDA_FIND
  return absence.why.empty();
}

const Driver* driver(Absence* absence) {
  static std::mutex* mutex = new std::mutex;
  static Driver* loaded = nullptr;
  static pid_t process = 0;  // that initialised it
  std::lock_guard<std::mutex> lock(*mutex);
  if (loaded && process != getpid()) {
    *absence = {"init",
                "the driver was initialised by the process that this one was forked from and does "
                "not survive a fork; start workers with spawn instead of fork"};
    return nullptr;
  }
  if (loaded) return loaded;
  Driver api = {};
  *absence = {};
  if (!load(api, *absence)) return nullptr;
  if (const CUresult result = api.Init(0)) {
    *absence = {"init", "cuInit gave " + text_of(api, result)};
    return nullptr;
  }
  process = getpid();
  return loaded = new Driver(api);
}

std::string text_of(const Driver& api, CUresult result) {
  const char *name = nullptr, *text = nullptr;
  api.GetErrorName(result, &name);
  api.GetErrorString(result, &text);
  return std::string(name ? name : "an error without a name") + " (" + std::to_string(result) +
         ")" + (text ? std::string(": ") + text : "");
}

}  // namespace accel::cuda
