#include "backends/cpu/device.h"

#include "backends/cpu/isa.h"
#include "backends/cpu/program.h"
#include "exec/fork.h"
#include "exec/memory.h"
#include "exec/worker_device.h"

namespace accel {

static constexpr int kMaxThreads = 1024;

namespace {

class CpuDevice : public WorkerDevice {
 public:
  CpuDevice(std::shared_ptr<CpuCore> core, DeviceInfo info, std::string digest)
      : WorkerDevice(std::move(info), core), digest_(std::move(digest)), core_(std::move(core)) {}

  Limits limits() const override;
  bool wraps() const override { return true; }
  BufferPtr wrap(void* host, DType dtype, int64_t count, bool writable, std::shared_ptr<void> owner,
                 const std::string& label) override;
  // One for all: the kernels of an instruction set are one object.
  std::string kernel_digest(const std::string&) const override { return digest_; }

 private:
  std::unique_ptr<Program> make_program(const PlanData& plan,
                                        const TransientPoolPtr& pool) override {
    return std::make_unique<CpuProgram>(core_, plan, pool);
  }
  const std::string digest_;
  const std::shared_ptr<CpuCore> core_;
};

Limits CpuDevice::limits() const {
  Limits l;
  l.backend = Backend::cpu;
  l.isa = info().isa;
  l.threads = info().threads;
  l.alignment = kAlignment;
  l.max_bytes = core_->max_bytes;
  l.fuse = true;
  return l;
}

BufferPtr CpuDevice::wrap(void* host, DType dtype, int64_t count, bool writable,
                          std::shared_ptr<void> owner, const std::string& label) {
  check_open();
  check_count("wrap", dtype, count, INT64_MAX);
  if (!host) throw attr_error("wrap", "host", "wrap: host is null and must be an address");
  if (reinterpret_cast<uintptr_t>(host) % uintptr_t(size_of(dtype)))
    throw bind_error("alignment", label,
                     name_or(label, "memory") + " starts at an address that is no multiple of " +
                         std::to_string(size_of(dtype)) + " and must be aligned to its elements (" +
                         name_of(dtype) + "); device.buffer() makes an aligned copy");
  // The bytes belong to the owner; the pointer only says where they are.
  BufferPtr buffer = finish(std::shared_ptr<void>(std::move(owner), host), dtype, count, label);
  buffer->writable = writable;
  return buffer;
}

int thread_count(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads)
    throw attr_error("open_cpu", "threads",
                     "open_cpu: threads is " + std::to_string(options.threads) +
                         " and must be 0 (all cores) to " + std::to_string(kMaxThreads));
  return options.threads ? options.threads : std::min(usable_cpus(), kMaxThreads);
}

DeviceInfo info_of(const accel_cpu::KernelTable& table, const CpuOptions& options) {
  DeviceInfo i;
  static const char token[17] = "accel:cpu:host:0";
  std::copy(token, token + 16, i.id.begin());
  i.backend = "cpu";
  i.name = cpu_name();
  i.vendor = cpu_vendor();
  i.level = table.level;
  i.isa = table.isa;
  i.threads = thread_count(options);
  i.capabilities = {"host_memory", "queues"};
  const int64_t total = memory_total();
  i.limits = {{"alignment", kAlignment},
              {"max_bytes", total > 0 ? total : int64_t(1) << 40},
              {"threads", i.threads}};
  return i;
}

}  // namespace

DeviceInfo cpu_info(const CpuOptions& options) {
  return info_of(pick_table(options.isa), options);
}

DevicePtr open_cpu_with(const accel_cpu::KernelTable& table, const CpuOptions& options,
                        const std::string& digest) {
  check_fork();
  check_debug_options("open_cpu", options.debug_fill, options.lose_at);
  DeviceInfo info = info_of(table, options);
  watch_forks();
  auto core = std::make_shared<CpuCore>(options, table, info.threads);
  return std::make_shared<CpuDevice>(std::move(core), std::move(info),
                                     digest.empty() ? kernel_digest(table.isa) : digest);
}

DevicePtr open_cpu(const CpuOptions& options) {
  check_debug_options("open_cpu", options.debug_fill, options.lose_at);
  return open_cpu_with(pick_table(options.isa), options);
}

}  // namespace accel
