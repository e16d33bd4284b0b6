// The embedded kernels on one device: each module is loaded when a plan first needs a function of
// it, which is when the driver compiles its PTX.
#pragma once
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/core.h"
#include "ops/opdef.h"

namespace accel::cuda {

// Why this build has no kernels; empty where it has.
const char* kernels_absent();
// Of all embedded texts and the options they were translated with.
const char* kernels_digest();

// One function with what its parameters are: a pointer for the buffer at each of `places`, in that
// order, but at PARAMS `params_bytes` bytes by value.
struct Function {
  CUfunction handle = nullptr;
  const uint8_t* places = nullptr;
  int n_places = 0;
  int64_t params_bytes = 0;
  uint32_t early = 0;  // bit p: it reads memory of place p before it waits for earlier kernels
};

class Modules {
 public:
  explicit Modules(Core& core) : core_(core) {}
  ~Modules();
  // In the context, ready for the launch's threads and memory of a group. Throws compile errors
  // with the file and the driver's log.
  Function get(const Launch& launch);

 private:
  CUmodule load(int module);
  CUresult make_room(CUfunction function, int bytes);

  Core& core_;
  std::mutex mutex_;
  std::shared_ptr<Context> context_;
  std::map<int, CUmodule> loaded_;
  std::map<CUfunction, int> room_;  // bytes of a group that a launch may give it
};

}  // namespace accel::cuda
