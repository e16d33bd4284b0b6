#include "backends/cpu/device.h"

#include "backends/cpu/isa.h"
#include "backends/cpu/program.h"
#include "exec/fork.h"
#include "exec/memory.h"

namespace accel {

static constexpr int kMaxThreads = 1024;

namespace {

class CpuBuffer : public Buffer {
 public:
  // The live count was raised by the device.
  CpuBuffer(DevicePtr device, std::shared_ptr<std::atomic<int64_t>> live,
            std::shared_ptr<void> memory) {
    device_ = std::move(device);
    live_ = std::move(live);
    host_ = memory.get();
    memory_ = std::move(memory);
  }
};

class CpuDevice : public Device {
 public:
  CpuDevice(const CpuOptions& options, const accel_cpu::KernelTable& table, DeviceInfo info,
            std::string digest)
      : info_(std::move(info)),
        digest_(std::move(digest)),
        core_(std::make_shared<CpuCore>(options, table, info_.threads)),
        worker_(std::make_shared<Worker>(core_)) {}

  const DeviceInfo& info() const override { return info_; }
  Limits limits() const override;
  BufferPtr new_buffer(DType dtype, int64_t count, const std::string& label) override;
  BufferPtr wrap(void* host, DType dtype, int64_t count, bool writable, std::shared_ptr<void> owner,
                 const std::string& label) override;
  QueuePtr default_queue() override;
  QueuePtr new_queue(const std::string& label) override;
  TransientPoolPtr new_transient_pool(const std::string& label) override;
  std::unique_ptr<Program> compile(const PlanData& plan, const TransientPoolPtr& pool) override;
  // One for all: the kernels of an instruction set are one object.
  std::string kernel_digest(const std::string&) const override { return digest_; }
  void close() override;
  bool closed() const override { return closed_.load(std::memory_order_acquire); }
  void check_alive() const override;

 private:
  void check_open() const;
  BufferPtr finish(std::shared_ptr<void> memory, DType dtype, int64_t count,
                   const std::string& label);

  const DeviceInfo info_;
  const std::string digest_;
  const std::shared_ptr<CpuCore> core_;
  const std::shared_ptr<Worker> worker_;  // of the default queue
  mutable std::mutex mutex_;              // children against close
  std::weak_ptr<Queue> default_queue_;
  std::atomic<bool> closed_{false};
};

Limits CpuDevice::limits() const {
  Limits l;
  l.backend = Backend::cpu;
  l.isa = info_.isa;
  l.threads = info_.threads;
  l.alignment = kAlignment;
  l.max_bytes = core_->max_bytes;
  l.fuse = true;
  return l;
}

void CpuDevice::check_alive() const {
  check_fork();
  if (core_->lost()) throw core_->lost_error();
}

void CpuDevice::check_open() const {
  check_alive();
  if (closed())
    throw bind_error("lifetime", "device", "device " + info_.name + " is closed and must be open");
}

std::string name_or(const std::string& label, const char* kind) {
  return label.empty() ? std::string(kind) : kind + (" " + label);
}

// Throws unless count elements make a buffer within the limit; compared in elements, so that
// nothing overflows.
void check_count(const char* what, DType dtype, int64_t count, int64_t limit) {
  if (count < 1)
    throw attr_error(
        what, "count",
        std::string(what) + ": count is " + std::to_string(count) + " and must be positive");
  if (count <= limit / size_of(dtype)) return;
  const int64_t bytes = count > INT64_MAX / size_of(dtype) ? INT64_MAX : count * size_of(dtype);
  throw capacity_error("too_large",
                       std::string(what) + ": count is " + std::to_string(count) + " x " +
                           name_of(dtype) + " and must be at most " + std::to_string(limit) +
                           " bytes (max_bytes of the device)",
                       bytes, memory_available(), limit);
}

BufferPtr CpuDevice::finish(std::shared_ptr<void> memory, DType dtype, int64_t count,
                            const std::string& label) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  auto buffer =
      std::make_shared<CpuBuffer>(shared_from_this(), core_->live_buffers, std::move(memory));
  core_->live_buffers->fetch_add(1, std::memory_order_acq_rel);
  buffer->dtype = dtype;
  buffer->count = count;
  buffer->label = label;
  return buffer;
}

BufferPtr CpuDevice::new_buffer(DType dtype, int64_t count, const std::string& label) {
  check_open();
  check_count("new_buffer", dtype, count, core_->max_bytes);
  return finish(allocate_zeroed(count * size_of(dtype), core_->max_bytes, name_or(label, "buffer")),
                dtype, count, label);
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

QueuePtr CpuDevice::default_queue() {
  check_open();
  std::lock_guard<std::mutex> lock(mutex_);
  if (QueuePtr queue = default_queue_.lock()) return queue;
  QueuePtr queue =
      std::make_shared<WorkerQueue>(shared_from_this(), worker_, core_, "default", false);
  default_queue_ = queue;
  return queue;
}

QueuePtr CpuDevice::new_queue(const std::string& label) {
  check_open();  // before the lock: a forked child must not wait for a thread it does not have
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  return std::make_shared<WorkerQueue>(shared_from_this(), std::make_shared<Worker>(core_), core_,
                                       label, true);
}

TransientPoolPtr CpuDevice::new_transient_pool(const std::string& label) {
  check_open();
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  return std::make_shared<TransientPool>(shared_from_this(), core_->live_pools, label,
                                         core_->max_bytes);
}

std::unique_ptr<Program> CpuDevice::compile(const PlanData& plan, const TransientPoolPtr& pool) {
  check_open();
  auto program = std::make_unique<CpuProgram>(core_, plan, pool);
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  return program;
}

void CpuDevice::close() {
  check_fork();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed()) return;
    const int64_t buffers = core_->live_buffers->load(), queues = core_->live_queues.load(),
                  pools = core_->live_pools->load(), programs = core_->live_programs.load(),
                  work = worker_->in_flight();
    if (const int64_t n = buffers + queues + pools + programs + work)
      throw bind_error("lifetime", info_.name,
                       "device " + info_.name + " has " + std::to_string(n) + " live children (" +
                           std::to_string(buffers) + " buffers, " + std::to_string(queues) +
                           " queues, " + std::to_string(pools) + " transient pools, " +
                           std::to_string(programs) + " graphs, " + std::to_string(work) +
                           " submissions in flight) and must have none to close");
    closed_.store(true, std::memory_order_release);
  }
  worker_->close("default");
}

int thread_count(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads)
    throw attr_error("open_cpu", "threads",
                     "open_cpu: threads is " + std::to_string(options.threads) +
                         " and must be 0 (all cores) to " + std::to_string(kMaxThreads));
  return options.threads ? options.threads : std::min(usable_cpus(), kMaxThreads);
}

void check_options(const CpuOptions& options) {
  if (options.debug_fill < -1 || options.debug_fill > 255)
    throw attr_error("open_cpu", "debug_fill",
                     "open_cpu: debug_fill is " + std::to_string(options.debug_fill) +
                         " and must be a byte, 0 to 255");
  if (options.lose_at < 0)
    throw attr_error("open_cpu", "lose_at",
                     "open_cpu: lose_at is " + std::to_string(options.lose_at) +
                         " and must be a submission's number, from 1");
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
  check_options(options);
  DeviceInfo info = info_of(table, options);
  watch_forks();
  return std::make_shared<CpuDevice>(options, table, std::move(info),
                                     digest.empty() ? kernel_digest(table.isa) : digest);
}

DevicePtr open_cpu(const CpuOptions& options) {
  check_options(options);
  return open_cpu_with(pick_table(options.isa), options);
}

}  // namespace accel
