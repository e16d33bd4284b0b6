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
  // Whether it came from a file, so that something may be found in it.
  bool loaded() const { return loaded_; }
  // Compiles it into the archive.
  void add(const MTL::ComputePipelineDescriptor* descriptor);
  // Writes the file where something was added since.
  void save();
  const std::vector<ProbeNote>& notes() const { return notes_; }

 private:
  Ref<MTL::BinaryArchive> open(const std::string& path, std::string& why) const;
  void note(const std::string& error) { notes_.push_back({"metal", "archive", error}); }

  const Ref<MTL::Device> device_;
  std::string path_;  // empty: nothing is kept
  Ref<MTL::BinaryArchive> archive_;
  bool loaded_ = false, changed_ = false;
  std::vector<ProbeNote> notes_;
};

}  // namespace accel::metal
