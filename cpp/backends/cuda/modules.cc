#include "backends/cuda/modules.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "backends/cuda/errors.h"
#include "backends/cuda/overlap.h"
#include "exec/fork.h"

namespace accel::cuda {

namespace {

namespace built {
struct CudaModule {
  const char *name, *ptx;
};
struct CudaFunction {
  const char* name;
  int module, first_place, places, params_bytes;
  uint32_t early;
};
#include "cuda_shaders.inc"
}  // namespace built

const built::CudaFunction& row_of(const std::string& function) {
  const auto* const end = std::end(built::kFunctions);
  const auto* const at = std::lower_bound(
      std::begin(built::kFunctions), end, function,
      [](const built::CudaFunction& f, const std::string& name) { return name > f.name; });
  if (at == end || function != at->name)
    throw Error(ErrorKind::internal, "internal",
                "shader function " + function + " is missing; please report this");
  return *at;
}

}  // namespace

const char* kernels_absent() {
  return built::kAbsent;
}
const char* kernels_digest() {
  return built::kDigest;
}

Modules::~Modules() {
  if (!context_ || forked()) return;
  const Current current(*context_);
  for (const auto& [module, handle] : loaded_)
    if (!current.result) core_.api.ModuleUnload(handle);
}

// With the lock.
CUmodule Modules::load(int module) {
  if (const auto at = loaded_.find(module); at != loaded_.end()) return at->second;
  context_ = core_.context();
  std::string log(8192, '\0');
  int options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log.data(), reinterpret_cast<void*>(log.size())};
  CUmodule made = nullptr;
  std::string ptx = built::kModules[module].ptx;
  if (core_.options.overlap) ptx = overlapped(std::move(ptx));
  const CUresult result = core_.api.ModuleLoadDataEx(&made, ptx.c_str(), 2, options, values);
  if (result == CUDA_ERROR_OUT_OF_MEMORY || is_sticky(result))
    throw error_of(result, "cuModuleLoadDataEx", core_);
  if (result)
    throw compile_error(built::kModules[module].name,
                        text_of(core_.api, result) + "\n" + log.c_str());
  return loaded_[module] = made;
}

// With the lock. Launches that are recorded need what was allowed before, so it never shrinks. The
// groups that are counted on (Launch::per_unit) fit where the cache in front of memory takes no
// part of a multiprocessor's own memory; without a preference how much it takes is the driver's
// choice.
CUresult Modules::make_room(CUfunction function, int bytes) {
  int& room = room_[function];
  if (bytes <= room) return CUDA_SUCCESS;
  CUresult result =
      core_.api.FuncSetAttribute(function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, bytes);
  if (!result && !room)
    result = core_.api.FuncSetAttribute(function,
                                        CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 100);
  if (!result) room = bytes;
  return result;
}

Function Modules::get(const Launch& launch) {
  const std::string& function = launch.function;
  const uint32_t threads = launch.threads;
  const built::CudaFunction& row = row_of(function);
  std::lock_guard<std::mutex> lock(mutex_);
  Function f;
  f.places = built::kPlaces + row.first_place;
  f.n_places = row.places;
  f.params_bytes = row.params_bytes;
  f.early = row.early;
  const char* const file = built::kModules[row.module].name;
  const auto refuse = [&](CUresult result, const char* call) {
    if (result == CUDA_ERROR_OUT_OF_MEMORY || is_sticky(result))
      throw error_of(result, call, core_);
    if (result) throw compile_error(file, function + ": " + text_of(core_.api, result));
  };
  refuse(core_.api.ModuleGetFunction(&f.handle, load(row.module), row.name), "cuModuleGetFunction");
  int most = 0;
  refuse(core_.api.FuncGetAttribute(&most, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, f.handle),
         "cuFuncGetAttribute");
  if (uint32_t(most) < threads)
    throw compile_error(file, function + ": a block is at most " + std::to_string(most) +
                                  " threads and must be " + std::to_string(threads));
  if (launch.group_bytes)
    refuse(make_room(f.handle, int(launch.group_bytes)), "cuFuncSetAttribute");
  return f;
}

}  // namespace accel::cuda
