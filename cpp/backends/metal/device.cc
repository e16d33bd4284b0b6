#include "backends/metal/device.h"

#include <cstring>

#include "backends/metal/program.h"
#include "backends/metal/shaders.h"
#include "exec/fork.h"
#include "exec/worker_device.h"

namespace accel {

namespace metal {
namespace {

// From this family on SIMD groups exchange values and multiply matrices.
bool exchanges(MTL::Device* device, const MetalOptions& options) {
  return !options.plain && device->supportsFamily(MTL::GPUFamilyApple7);
}

DeviceInfo info_of(MTL::Device* device, const MetalOptions& options) {
  const Scope scope;
  DeviceInfo i;
  const uint64_t registry = device->registryID();
  std::memcpy(i.id.data(), "accel:mt", 8);
  std::memcpy(i.id.data() + 8, &registry, 8);
  i.backend = "metal";
  i.name = text(device->name());
  i.vendor = "Apple";
#if !defined(__APPLE__)
  i.software = true;
#endif
  i.level = "metal";
  i.isa = exchanges(device, options) ? "apple7" : "plain";
  i.capabilities = {"queues"};
  if (device->hasUnifiedMemory()) i.capabilities.push_back("host_memory");
  if (exchanges(device, options)) i.capabilities.push_back("simd_groups");
  i.limits = {{"alignment", 256},
              {"max_bytes", int64_t(device->maxBufferLength())},
              {"working_set", int64_t(device->recommendedMaxWorkingSetSize())}};
  return i;
}

std::vector<Ref<MTL::Device>> adapters() {
  const Scope scope;
  std::vector<Ref<MTL::Device>> found;
  if (const auto all = adopt(MTL::CopyAllDevices()))
    for (NS::UInteger i = 0; i < all->count(); ++i)
      found.push_back(keep(all->object<MTL::Device>(i)));
  // Where the list is kept from this process, the default may still be had.
  if (found.empty())
    if (auto device = adopt(MTL::CreateSystemDefaultDevice())) found.push_back(std::move(device));
  return found;
}

class MetalDevice : public WorkerDevice {
 public:
  MetalDevice(std::shared_ptr<Core> core, DeviceInfo info)
      : WorkerDevice(std::move(info), core), core_(std::move(core)) {}

  Limits limits() const override {
    Limits l;
    l.backend = Backend::metal;
    l.isa = info().isa;
    l.alignment = 256;
    l.max_bytes = core_->max_bytes;
    l.simd_groups = l.isa != "plain";
    return l;
  }
  bool wraps() const override { return false; }
  BufferPtr wrap(void*, DType, int64_t, bool, std::shared_ptr<void>, const std::string&) override {
    throw unsupported_error(
        "metal uses no memory of the host in place; device.buffer(array) makes the copy");
  }
  std::string kernel_digest(const std::string&) const override { return shader_digest(); }
  std::vector<ProbeNote> notes() const override { return core_->pipelines.notes(); }

 private:
  std::unique_ptr<Program> make_program(const PlanData& plan,
                                        const TransientPoolPtr& pool) override {
    return std::make_unique<MetalProgram>(core_, plan, pool);
  }
  // With the device's lock.
  QueuePtr make_queue(std::shared_ptr<Worker> worker, const std::string& label,
                      bool is_default) override {
    std::shared_ptr<Stream> stream = is_default ? default_stream_ : nullptr;
    if (!stream) stream = own(new Stream(*core_));
    if (is_default) default_stream_ = stream;
    return std::make_shared<MetalQueue>(shared_from_this(), std::move(worker), core_, label,
                                        !is_default, std::move(stream));
  }
  void* native_of(const std::shared_ptr<void>& memory) const override { return buffer_of(memory); }

  const std::shared_ptr<Core> core_;
  std::shared_ptr<Stream> default_stream_;  // follows the worker of the default queue
};

}  // namespace
}  // namespace metal

void find_metal(Enumeration& found) {
  const auto adapters = metal::adapters();
  for (const auto& device : adapters) found.devices.push_back(metal::info_of(device.get(), {}));
  if (adapters.empty())
    found.notes.push_back({"metal", "enumerate", "the system lists no Metal device"});
}

DevicePtr open_metal(const MetalOptions& options) {
  check_fork();
  check_debug_options("open_metal", options.debug_fill, options.lose_at);
  const auto adapters = metal::adapters();
  if (adapters.empty())
    throw device_error("open_metal: the system lists no Metal device", "no_adapter");
  if (options.index < 0 || size_t(options.index) >= adapters.size())
    throw device_error("open_metal: index is " + std::to_string(options.index) +
                           " and must be below " + std::to_string(adapters.size()) +
                           ", the number of adapters",
                       "no_adapter");
  const auto& device = adapters[size_t(options.index)];
  watch_forks();
  auto core = metal::own(new metal::Core(device, options));
  DeviceInfo info = metal::info_of(device.get(), options);
  return std::make_shared<metal::MetalDevice>(std::move(core), std::move(info));
}

}  // namespace accel
