#include "backends/metal/archive.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "backends/metal/shaders.h"
#include "base/sha256.h"

namespace accel::metal {

namespace fs = std::filesystem;

// One file for a device, a system, whose compiler it was, and a state of the shaders: what others
// compiled is never taken for it.
static std::string file_name(MTL::Device* device) {
  const std::string system = text(NS::ProcessInfo::processInfo()->operatingSystemVersionString());
  const std::string what = shader_digest() + "\n" + text(device->name()) + "\n" + system;
  return "accel-metal-" + hex_of(sha256(what)).substr(0, 16) + ".archive";
}

Archive::Archive(Ref<MTL::Device> device, const std::string& folder) : device_(device) {
  const char* fallback = std::getenv("ACCEL_METAL_CACHE");
  const std::string where = !folder.empty() ? folder : fallback ? fallback : "";
  if (where.empty()) return;
  const Scope scope;
  std::error_code failed;
  fs::create_directories(where, failed);
  path_ = (fs::path(where) / file_name(device.get())).string();
  std::string why;
  if (fs::exists(path_, failed)) {
    archive_ = open(path_, why);
    loaded_ = bool(archive_);
    if (!archive_) note(path_ + " was not readable and is written anew: " + why);
  }
  if (!archive_) archive_ = open("", why);
  if (!archive_) note("no archive can be made: " + why);
}

Ref<MTL::BinaryArchive> Archive::open(const std::string& path, std::string& why) const {
  const auto descriptor = adopt(MTL::BinaryArchiveDescriptor::alloc()->init());
  if (!path.empty()) descriptor->setUrl(NS::URL::fileURLWithPath(text(path)));
  NS::Error* error = nullptr;
  auto archive = adopt(device_->newBinaryArchive(descriptor.get(), &error));
  if (!archive) why = text(error);
  return archive;
}

void Archive::look_in(MTL::ComputePipelineDescriptor* descriptor) const {
  if (!archive_) return;
  const NS::Object* const all[] = {archive_.get()};
  descriptor->setBinaryArchives(NS::Array::array(all, 1));
}

void Archive::add(const MTL::ComputePipelineDescriptor* descriptor) {
  if (!archive_) return;
  NS::Error* error = nullptr;
  if (archive_->addComputePipelineFunctions(descriptor, &error)) changed_ = true;
  else note("a pipeline was not kept: " + text(error));
}

void Archive::save() {
  if (!archive_ || !changed_) return;
  changed_ = false;
  // Whole or not at all: a start that reads it meanwhile finds the old one.
  const std::string part = path_ + "." + std::to_string(getpid()) + ".part";
  NS::Error* error = nullptr;
  std::error_code failed;
  if (archive_->serializeToURL(NS::URL::fileURLWithPath(text(part)), &error)) {
    fs::rename(part, path_, failed);
    if (!failed) return;
    note(path_ + " was not written: " + failed.message());
  } else {
    note(path_ + " was not written: " + text(error));
  }
  fs::remove(part, failed);
}

}  // namespace accel::metal
