// Runtime: what plans of one device share, and the count that keeps it open while plans are.
#include "exec/fork.h"
#include "runtime/plan_impl.h"

namespace accel {

RuntimePtr Runtime::create(DevicePtr device) {
  if (!device)
    throw attr_error("Runtime", "device", "Runtime: device is missing and must be an open device");
  device->check_alive();
  if (device->closed())
    throw bind_error("lifetime", "device", "Runtime: device is closed and must be open");
  RuntimePtr runtime(new Runtime);
  runtime->p_ = std::make_shared<Impl>();
  runtime->p_->device = std::move(device);
  return runtime;
}

Runtime::~Runtime() = default;

const DevicePtr& Runtime::device() const {
  return p_->device;
}

Builder Runtime::new_builder(const std::string& label) {
  check_fork();
  return Builder(label, shared_from_this());
}

Counters Runtime::counters() const {
  check_fork();
  return {p_->built.load(), p_->planned.load(), p_->pipelines.load()};
}

void Runtime::close() {
  check_fork();
  std::lock_guard<std::mutex> lock(p_->mutex);
  if (p_->closed) return;
  if (const int64_t n = p_->open_plans)
    throw bind_error("lifetime", "runtime",
                     "runtime has " + std::to_string(n) + " open plan" + (n == 1 ? "" : "s") +
                         " and must have none to close");
  p_->closed = true;
  p_->kernels.clear();
}

bool Runtime::closed() const {
  check_fork();
  std::lock_guard<std::mutex> lock(p_->mutex);
  return p_->closed;
}

void Runtime::Impl::open_plan() {
  std::lock_guard<std::mutex> lock(mutex);
  if (closed)
    throw bind_error("lifetime", "runtime", "compile: runtime is closed and must be open");
  ++open_plans;
}

void Runtime::Impl::close_plan() {
  std::lock_guard<std::mutex> lock(mutex);
  --open_plans;
}

void Runtime::Impl::count_pipelines(const PlanData& data) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const Command& c : data.commands)
    if (kernels.insert(c.row->kernel).second) pipelines.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace accel
