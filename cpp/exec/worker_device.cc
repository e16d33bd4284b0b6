#include "exec/worker_device.h"

#include <cstring>

#include "exec/fork.h"
#include "exec/memory.h"

namespace accel {

namespace {

class WorkerBuffer : public Buffer {
 public:
  // The live count was raised by the device.
  WorkerBuffer(DevicePtr device, std::shared_ptr<std::atomic<int64_t>> live,
               std::shared_ptr<void> memory, void* native) {
    host_visible_ = device->host_visible();
    device_ = std::move(device);
    live_ = std::move(live);
    native_ = native;
    address_ = memory.get();
    memory_ = std::move(memory);
  }
};

}  // namespace

void Device::copy_in(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, size_t(bytes));
}
void Device::copy_out(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, size_t(bytes));
}
void Device::copy_within(void* to, const void* from, int64_t bytes) {
  std::memcpy(to, from, size_t(bytes));
}

WorkerDevice::WorkerDevice(DeviceInfo info, std::shared_ptr<WorkerHost> host)
    : info_(std::move(info)), host_(std::move(host)), worker_(std::make_shared<Worker>(host_)) {}

void WorkerDevice::check_alive() const {
  check_fork();
  if (host_->lost()) throw host_->lost_error();
}

void WorkerDevice::check_open() const {
  check_alive();
  if (closed())
    throw bind_error("lifetime", "device", "device " + info_.name + " is closed and must be open");
}

std::string name_or(const std::string& label, const char* kind) {
  return label.empty() ? std::string(kind) : kind + (" " + label);
}

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

void check_debug_options(const char* call, int debug_fill, int64_t lose_at) {
  const std::string name = call;
  if (debug_fill < -1 || debug_fill > 255)
    throw attr_error(
        call, "debug_fill",
        name + ": debug_fill is " + std::to_string(debug_fill) + " and must be a byte, 0 to 255");
  if (lose_at < 0)
    throw attr_error(call, "lose_at",
                     name + ": lose_at is " + std::to_string(lose_at) +
                         " and must be a submission's number, from 1");
}

BufferPtr WorkerDevice::finish(std::shared_ptr<void> memory, DType dtype, int64_t count,
                               const std::string& label) {
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  void* native = native_of(memory);
  auto buffer = std::make_shared<WorkerBuffer>(shared_from_this(), host_->live_buffers,
                                               std::move(memory), native);
  host_->live_buffers->fetch_add(1, std::memory_order_acq_rel);
  buffer->dtype = dtype;
  buffer->count = count;
  buffer->label = label;
  return buffer;
}

BufferPtr WorkerDevice::new_buffer(DType dtype, int64_t count, const std::string& label) {
  check_open();
  check_count("new_buffer", dtype, count, host_->max_bytes);
  return finish(host_->allocate(count * size_of(dtype), name_or(label, "buffer")), dtype, count,
                label);
}

QueuePtr WorkerDevice::make_queue(std::shared_ptr<Worker> worker, const std::string& label,
                                  bool is_default) {
  return std::make_shared<WorkerQueue>(shared_from_this(), std::move(worker), host_, label,
                                       !is_default);
}

QueuePtr WorkerDevice::default_queue() {
  check_open();
  std::lock_guard<std::mutex> lock(mutex_);
  if (QueuePtr queue = default_queue_.lock()) return queue;
  QueuePtr queue = make_queue(worker_, "default", true);
  default_queue_ = queue;
  return queue;
}

QueuePtr WorkerDevice::new_queue(const std::string& label) {
  check_open();  // before the lock: a forked child must not wait for a thread it does not have
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  return make_queue(std::make_shared<Worker>(host_), label, false);
}

TransientPoolPtr WorkerDevice::new_transient_pool(const std::string& label) {
  check_open();
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  return std::make_shared<TransientPool>(shared_from_this(), host_->live_pools, label,
                                         [host = host_](int64_t bytes, const std::string& what) {
                                           return host->allocate(bytes, what);
                                         });
}

std::unique_ptr<Program> WorkerDevice::compile(const PlanData& plan, const TransientPoolPtr& pool) {
  check_open();
  auto program = make_program(plan, pool);
  std::lock_guard<std::mutex> lock(mutex_);
  check_open();
  return program;
}

void WorkerDevice::close() {
  check_fork();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (closed()) return;
    const int64_t buffers = host_->live_buffers->load(), queues = host_->live_queues.load(),
                  pools = host_->live_pools->load(), programs = host_->live_programs.load(),
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

}  // namespace accel
