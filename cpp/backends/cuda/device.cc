#include "backends/cuda/device.h"

#include <cstring>

#include "backends/cuda/errors.h"
#include "backends/cuda/overlap.h"
#include "backends/cuda/program.h"
#include "backends/cuda/transfer.h"
#include "exec/fork.h"
#include "exec/worker_device.h"
#include "ops/product_matrix.h"

namespace accel {

namespace cuda {
namespace {

// The PTX is translated for this and runs on everything newer.
constexpr int kLeastCapability = 80;
constexpr int64_t kAlign = 256;

struct Gpu {
  CUdevice device = 0;
  DeviceInfo info;
};

// What the driver says of a device; the first call that fails is kept.
class Asking {
 public:
  Asking(const Driver& api, CUdevice device) : api_(api), device_(device) {}
  int attribute(int which) {
    int value = 0;
    note("cuDeviceGetAttribute", api_.DeviceGetAttribute(&value, which, device_));
    return value;
  }
  DeviceInfo info() {
    DeviceInfo i;
    char name[256] = {};
    CUuuid uuid = {};
    size_t memory = 0;
    int version = 0;
    note("cuDeviceGetName", api_.DeviceGetName(name, sizeof name - 1, device_));
    note("cuDeviceGetUuid", api_.DeviceGetUuid(&uuid, device_));
    note("cuDeviceTotalMem", api_.DeviceTotalMem(&memory, device_));
    note("cuDriverGetVersion", api_.DriverGetVersion(&version));
    const int capability = 10 * attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                           attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
    std::memcpy(i.id.data(), "accel:cu", 8);
    std::memcpy(i.id.data() + 8, uuid.bytes, 8);
    i.backend = "cuda";
    i.name = name;
    i.vendor = "NVIDIA";
    i.level = "cuda";
    i.isa = "sm_" + std::to_string(capability);
    i.capabilities = {"queues", "simd_groups"};
    if (plain_edges_because(api_, capability, version).empty())
      i.capabilities.insert(i.capabilities.begin(), "overlap");
    i.limits = {{"alignment", kAlign},
                {"compute_capability", capability},
                {"driver", version},
                {"group_bytes", attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)},
                {"max_bytes", int64_t(memory)},
                {"multiprocessors", attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)}};
    return i;
  }
  std::string failed;  // empty: nothing has

 private:
  void note(const char* call, CUresult result) {
    if (result && failed.empty()) failed = std::string(call) + " gave " + text_of(api_, result);
  }
  const Driver& api_;
  const CUdevice device_;
};

int64_t limit(const DeviceInfo& info, const char* name) {
  for (const auto& [key, value] : info.limits)
    if (key == name) return value;
  return 0;
}

// Those that can run the kernels of this build; notes for the others and where there is none.
std::vector<Gpu> gpus(std::vector<ProbeNote>& notes) {
  std::vector<Gpu> found;
  const auto note = [&](const std::string& stage, const std::string& why) {
    notes.push_back({"cuda", stage, why});
    return found;
  };
  if (*kernels_absent()) return note("build", kernels_absent());
  Absence absence;
  const Driver* api = driver(&absence);
  if (!api) return note(absence.stage, absence.why);
  int n = 0;
  if (const CUresult result = api->DeviceGetCount(&n))
    return note("enumerate", "cuDeviceGetCount gave " + text_of(*api, result));
  if (n == 0) return note("enumerate", "the driver lists no device");
  for (int i = 0; i < n; ++i) {
    Gpu gpu;
    if (const CUresult result = api->DeviceGet(&gpu.device, i)) {
      note("enumerate", "cuDeviceGet gave " + text_of(*api, result));
      continue;
    }
    Asking asking(*api, gpu.device);
    gpu.info = asking.info();
    if (!asking.failed.empty()) note("enumerate", asking.failed);
    else if (limit(gpu.info, "compute_capability") < kLeastCapability)
      note("capability", gpu.info.name + " is " + gpu.info.isa + " and must be sm_" +
                             std::to_string(kLeastCapability) + " or newer");
    else found.push_back(std::move(gpu));
  }
  return found;
}

// Why no product of the device takes matrix units, or empty.
std::string no_matrix_because(const DeviceInfo& info) {
  const int64_t there = limit(info, "group_bytes"), needed = matrix_group_bytes();
  if (there >= needed) return "";
  return "group_bytes is " + std::to_string(there) + " and must be " + std::to_string(needed) +
         " for products on matrix units";
}

class CudaDevice : public WorkerDevice {
 public:
  CudaDevice(std::shared_ptr<Core> core, DeviceInfo info, std::vector<ProbeNote> notes)
      : WorkerDevice(std::move(info), core), core_(std::move(core)), notes_(std::move(notes)) {}
  std::vector<ProbeNote> notes() const override { return notes_; }

  Limits limits() const override {
    Limits l;
    l.backend = Backend::cuda;
    l.isa = info().isa;
    l.alignment = kAlign;
    l.max_bytes = core_->max_bytes;
    l.group_bytes = limit(info(), "group_bytes");
    l.fuse = !core_->options.check;  // checks look between commands
    l.matrix = core_->options.matrix;
    return l;
  }
  bool wraps() const override { return false; }
  bool host_visible() const override { return false; }
  BufferPtr wrap(void* address, DType dtype, int64_t count, bool writable,
                 std::shared_ptr<void> owner, const std::string& label) override {
    check_open();
    check_count("wrap", dtype, count, core_->max_bytes);
    BufferPtr buffer =
        finish(std::shared_ptr<void>(std::move(owner), address), dtype, count, label);
    buffer->writable = writable;
    return buffer;
  }
  void copy_in(void* to, const void* from, int64_t bytes) override {
    core_->transfer().in(to, from, bytes);
  }
  void copy_out(void* to, const void* from, int64_t bytes) override {
    core_->transfer().out(to, from, bytes);
  }
  void copy_within(void* to, const void* from, int64_t bytes) override {
    core_->transfer().within(to, from, bytes);
  }
  DlpackPlace dlpack_place() const override { return {2, core_->device}; }
  int64_t import_stream() override {
    return int64_t(reinterpret_cast<intptr_t>(core_->transfer().stream()));
  }
  void finish_import() override { core_->transfer().finish(); }
  std::string kernel_digest(const std::string&) const override { return kernels_digest(); }

 private:
  std::unique_ptr<Program> make_program(const PlanData& plan,
                                        const TransientPoolPtr& pool) override {
    return std::make_unique<CudaProgram>(core_, plan, pool);
  }
  // With the device's lock.
  QueuePtr make_queue(std::shared_ptr<Worker> worker, const std::string& label,
                      bool is_default) override {
    std::shared_ptr<Stream> stream = is_default ? default_stream_ : nullptr;
    if (!stream) stream = std::make_shared<Stream>(core_);
    if (is_default) default_stream_ = stream;
    return std::make_shared<CudaQueue>(shared_from_this(), std::move(worker), core_, label,
                                       !is_default, std::move(stream));
  }

  const std::shared_ptr<Core> core_;
  const std::vector<ProbeNote> notes_;
  std::shared_ptr<Stream> default_stream_;  // follows the worker of the default queue
};

}  // namespace
}  // namespace cuda

void find_cuda(Enumeration& found) {
  for (cuda::Gpu& gpu : cuda::gpus(found.notes)) found.devices.push_back(std::move(gpu.info));
}

DevicePtr open_cuda(const CudaOptions& options) {
  check_fork();
  check_debug_options("open_cuda", options.debug_fill, options.lose_at);
  std::vector<ProbeNote> notes;
  const std::vector<cuda::Gpu> found = cuda::gpus(notes);
  if (found.empty()) {
    std::string text = "open_cuda: there is no GPU to open";
    for (const ProbeNote& note : notes) text += "; " + note.stage + ": " + note.error;
    throw device_error(text, "no_adapter");
  }
  if (options.index < 0 || size_t(options.index) >= found.size())
    throw device_error("open_cuda: index is " + std::to_string(options.index) +
                           " and must be below " + std::to_string(found.size()) +
                           ", the number of GPUs",
                       "no_adapter");
  const cuda::Gpu& gpu = found[size_t(options.index)];
  watch_forks();
  cuda::Absence absence;
  const cuda::Driver& api = *cuda::driver(&absence);
  CudaOptions used = options;
  DeviceInfo info = gpu.info;
  notes.clear();
  // What was asked for and is not to be had.
  const auto lacks = [&](const char* what, const std::string& because) {
    if (!because.empty()) notes.push_back({"cuda", what, because});
    return !because.empty();
  };
  if (options.overlap)
    used.overlap =
        !lacks("overlap", cuda::plain_edges_because(api, cuda::limit(info, "compute_capability"),
                                                    cuda::limit(info, "driver")));
  if (options.matrix && !lacks("matrix", cuda::no_matrix_because(info)))
    info.capabilities.insert(info.capabilities.begin(), "matrix");
  auto core = std::make_shared<cuda::Core>(api, gpu.device, used, cuda::limit(info, "max_bytes"));
  return std::make_shared<cuda::CudaDevice>(std::move(core), std::move(info), std::move(notes));
}

}  // namespace accel
