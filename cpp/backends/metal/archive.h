// Compiled pipelines in a file, so that the next start need not compile them. One that cannot be
// read or written costs time and a note, nothing else.
#pragma once
#include <string>
#include <vector>

#include "backends/metal/objects.h"
#include "exec/device.h"

namespace accel::metal {

class Archive {
 public:
  // folder: empty for the variable ACCEL_METAL_CACHE, and without that for none.
  Archive(Ref<MTL::Device> device, const std::string& folder);
  // Makes a pipeline of this descriptor come out of the archive where it is there.
  void look_in(MTL::ComputePipelineDescriptor* descriptor) const;
  void add(const MTL::ComputePipelineDescriptor* descriptor);
  void save();
  const std::vector<ProbeNote>& notes() const { return notes_; }

 private:
  Ref<MTL::BinaryArchive> open(const std::string& path, std::string& why) const;
  void note(const std::string& error) { notes_.push_back({"metal", "archive", error}); }

  const Ref<MTL::Device> device_;
  std::string path_;  // empty: nothing is kept
  Ref<MTL::BinaryArchive> archive_;
  bool changed_ = false;
  std::vector<ProbeNote> notes_;
};

}  // namespace accel::metal
