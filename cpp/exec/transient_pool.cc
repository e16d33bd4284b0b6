#include "exec/transient_pool.h"

#include "exec/device.h"
#include "exec/fork.h"

namespace accel {

static int64_t next_serial() {
  static std::atomic<int64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

TransientPool::TransientPool(DevicePtr device, std::shared_ptr<std::atomic<int64_t>> live,
                             const std::string& label, Allocate allocate)
    : device_(std::move(device)),
      live_(std::move(live)),
      label_(label),
      allocate_(std::move(allocate)),
      serial_(next_serial()) {
  live_->fetch_add(1, std::memory_order_acq_rel);
}

TransientPool::~TransientPool() {
  if (!closed()) live_->fetch_sub(1, std::memory_order_acq_rel);
}

std::string TransientPool::text() const {
  return label_.empty() ? "pool" : "pool " + label_;
}

Error TransientPool::closed_error() const {
  return bind_error("lifetime", "pool", text() + " is closed and must be open");
}

Error TransientPool::busy_error(const char* must) const {
  return bind_error("in_flight", "pool", text() + " is executing one of its graphs and " + must);
}

int64_t TransientPool::bytes() const {
  check_fork();
  std::lock_guard<std::mutex> lock(mutex_);
  return bytes_;
}

int64_t TransientPool::graphs() const {
  check_fork();
  return graphs_.load(std::memory_order_acquire);
}

void TransientPool::close() {
  check_fork();
  std::shared_ptr<void> block;  // freed after the lock
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed()) return;
  if (const int64_t n = graphs())
    throw bind_error("lifetime", "pool",
                     text() + " has " + std::to_string(n) + " open graph" + (n == 1 ? "" : "s") +
                         " and must have none to close");
  closed_.store(true, std::memory_order_release);
  live_->fetch_sub(1, std::memory_order_acq_rel);
  block.swap(block_);
  bytes_ = 0;
}

void TransientPool::check_idle() const {
  check_fork();
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed()) throw closed_error();
  if (executing_) throw busy_error("must be idle to compile with: wait for the fence first");
}

void TransientPool::join(int64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (closed()) throw closed_error();
  if (bytes > bytes_) {
    if (executing_) throw busy_error("must be idle to grow: wait for the fence first");
    block_ = allocate_(bytes, text() + ": the arena of the transients");
    bytes_ = bytes;
  }
  graphs_.fetch_add(1, std::memory_order_acq_rel);
}

std::shared_ptr<void> TransientPool::block() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return block_;
}

TransientPool::Claim::Claim(TransientPoolPtr pool, const void* owner) : pool_(std::move(pool)) {
  if (!pool_) return;
  std::lock_guard<std::mutex> lock(pool_->mutex_);
  if (pool_->executing_ && (!owner || owner != pool_->owner_)) {
    refused_ = pool_->busy_error(
        "executes one at a time: submit on one queue, or order the queues with after=");
    return;
  }
  ++pool_->executing_;
  pool_->owner_ = owner;
}

TransientPool::Claim::~Claim() {
  if (!pool_ || refused_) return;
  std::lock_guard<std::mutex> lock(pool_->mutex_);
  --pool_->executing_;
}

}  // namespace accel
