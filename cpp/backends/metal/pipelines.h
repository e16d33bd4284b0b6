// Functions of the shader texts as pipelines: each text is compiled when a plan first needs a
// function of it, each function once for a size of group.
#pragma once
#include <map>
#include <mutex>
#include <vector>

#include "backends/metal/archive.h"
#include "backends/metal/objects.h"
#include "exec/device.h"

namespace accel::metal {

class Pipelines {
 public:
  // cache: as MetalOptions has it.
  Pipelines(Ref<MTL::Device> device, const std::string& cache);
  // Throws compile errors with the file, the line and the compiler's log.
  Ref<MTL::ComputePipelineState> get(const std::string& function, uint32_t threads);
  // Writes what was compiled since to the archive; a failure is a note.
  void save();
  std::vector<ProbeNote> notes() const;

 private:
  Ref<MTL::Library> library_of(const std::string& function);
  Ref<MTL::ComputePipelineState> make(MTL::ComputePipelineDescriptor* descriptor, std::string& why);

  const Ref<MTL::Device> device_;
  mutable std::mutex mutex_;
  std::map<std::string, Ref<MTL::Library>> libraries_;  // by text
  std::map<std::pair<std::string, uint32_t>, Ref<MTL::ComputePipelineState>> made_;
  Archive archive_;
};

}  // namespace accel::metal
