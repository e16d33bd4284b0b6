// A fence is signalled once, by a library thread or at submit; any thread may wait for it any
// number of times.
#include "exec/device.h"
#include "exec/fork.h"
#include "exec/park.h"

namespace accel {

struct Fence::Shared {
  std::atomic<bool> done{false};
  std::atomic<bool> observed{false};
  std::atomic<int64_t> spin_ns{50000};
  const void* origin = nullptr;  // written before anyone else has the fence
  // Written before `done`, never afterwards.
  std::optional<Error> error;
  FenceStats stats;
  Event event;
  std::mutex mutex;  // callbacks
  std::vector<std::function<void()>> callbacks;
};

Fence::Fence() : p_(std::make_shared<Shared>()) {}
Fence::~Fence() = default;

std::shared_ptr<Fence> Fence::failed(Error error) {
  auto fence = std::make_shared<Fence>();
  FenceStats stats;
  stats.queued_ns = stats.started_ns = stats.finished_ns = now_ns();
  fence->signal(std::move(error), stats);
  return fence;
}

void Fence::set_origin(const void* host) {
  p_->origin = host;
}
const void* Fence::origin() const {
  return p_->origin;
}

bool Fence::done() const {
  check_fork();
  return p_->done.load(std::memory_order_acquire);
}

bool Fence::wait_quiet(double seconds, const std::function<void()>& poll) const {
  const std::shared_ptr<Shared> keep = p_;
  Shared& s = *keep;
  return s.event.wait([&s] { return s.done.load(std::memory_order_acquire); }, seconds, 0, poll);
}

bool Fence::wait(double seconds, const std::function<void()>& poll) {
  check_fork();
  // The waiter may be the last owner of nothing but this reference; a signal still touches what it
  // waits on.
  const std::shared_ptr<Shared> keep = p_;
  Shared& s = *keep;
  const int64_t spin = s.spin_ns.load(std::memory_order_relaxed);
  if (!s.event.wait([&s] { return s.done.load(std::memory_order_acquire); }, seconds, spin, poll))
    return false;
  if (s.error) {
    s.observed.store(true, std::memory_order_relaxed);
    throw Error(*s.error);
  }
  return true;
}

std::optional<Error> Fence::error() const {
  return done() ? p_->error : std::nullopt;
}
bool Fence::observed() const {
  return p_->observed.load(std::memory_order_relaxed);
}
FenceStats Fence::stats() const {
  return done() ? p_->stats : FenceStats{};
}
void Fence::set_spin(int64_t spin_ns) {
  p_->spin_ns.store(spin_ns, std::memory_order_relaxed);
}

void Fence::far() {
  p_->event.far();
}
void Fence::near() {
  const std::shared_ptr<Shared> keep = p_;
  keep->event.near();
}
int Fence::asleep() const {
  return p_->event.asleep();
}

void Fence::on_done(std::function<void()> callback) {
  check_fork();
  {
    std::lock_guard<std::mutex> lock(p_->mutex);
    if (!p_->done.load(std::memory_order_acquire)) {
      p_->callbacks.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

void Fence::signal(std::optional<Error> error, const FenceStats& stats) {
  const std::shared_ptr<Shared> keep = p_;  // a waiter that wakes may drop the fence
  Shared& s = *keep;
  std::vector<std::function<void()>> callbacks;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    ACCEL_CHECK(!s.done.load(std::memory_order_relaxed));
    s.error = std::move(error);
    s.stats = stats;
    s.done.store(true, std::memory_order_release);
    callbacks.swap(s.callbacks);
  }
  s.event.notify();
  for (const auto& callback : callbacks) callback();
}

}  // namespace accel
