// Life of buffers: who holds one, when it may close, and how a submission learns that one has
// closed.
#include <algorithm>

#include "exec/device.h"
#include "exec/fork.h"
#include "exec/release.h"

namespace accel {

static std::mutex& lifetime_mutex() {
  static std::mutex* mutex = new std::mutex;  // never destroyed: buffers may outlive the statics
  return *mutex;
}

std::unique_lock<std::mutex> lifetime_lock() {
  return std::unique_lock<std::mutex>(lifetime_mutex());
}

std::atomic<uint64_t>& close_generation() {
  static std::atomic<uint64_t> generation{1};
  return generation;
}

Event& released() {
  static Event* event = new Event;
  return *event;
}

std::string labelled(const char* kind, const std::string& label) {
  return std::string(kind) + (label.empty() ? " without a label" : " " + label);
}

// Call with the lifetime lock: the thread that maps a buffer with these holds, or none.
static std::thread::id mapper(const std::vector<std::weak_ptr<Hold>>& holds) {
  for (const auto& weak : holds)
    if (const auto hold = weak.lock())
      if (hold->mapped_by != std::thread::id() && hold->in_flight.load()) return hold->mapped_by;
  return {};
}

// Call with the lifetime lock. A table that binds the buffer to several ports is listed once for
// each and counts once. seq_cst: see close().
static int held(const std::vector<std::weak_ptr<Hold>>& holds) {
  std::vector<const Hold*> counted;
  int n = 0;
  for (const auto& weak : holds) {
    const auto hold = weak.lock();
    if (!hold || hold->in_flight.load(std::memory_order_seq_cst) == 0) continue;
    if (std::find(counted.begin(), counted.end(), hold.get()) != counted.end()) continue;
    counted.push_back(hold.get());
    n += hold->in_flight.load(std::memory_order_seq_cst);
  }
  return n;
}

Buffer::~Buffer() {
  if (!closed() && live_) live_->fetch_sub(1, std::memory_order_acq_rel);
}

std::shared_ptr<void> Buffer::memory() const {
  check_fork();
  const auto lock = lifetime_lock();
  return memory_;
}

int Buffer::in_use() const {
  check_fork();
  const auto lock = lifetime_lock();
  return held(holds_);
}

bool Buffer::wait_idle(double seconds, const std::function<void()>& poll) {
  check_fork();
  const std::shared_ptr<Buffer> keep = shared_from_this();
  {
    const auto lock = lifetime_lock();
    if (mapper(holds_) == std::this_thread::get_id())
      throw bind_error("lifetime", label,
                       labelled("buffer", label) +
                           " is inside access on this thread and must be outside it: the array "
                           "that access gives is the buffer's memory");
  }
  return released().wait(
      [this] {
        const auto lock = lifetime_lock();
        return held(holds_) == 0;
      },
      seconds, 0, poll);
}

void Buffer::close() {
  check_fork();
  std::shared_ptr<void> memory;  // freed after the lock: an owner's deleter is the caller's code
  {
    const auto lock = lifetime_lock();
    if (closed()) return;
    // A submission raises its hold, then reads the generation; here the generation goes up, then
    // the holds are read. So either this sees the hold and refuses, or the submission sees the new
    // generation and looks at its buffers.
    close_generation().fetch_add(1, std::memory_order_seq_cst);
    if (mapper(holds_) != std::thread::id())
      throw bind_error("lifetime", label,
                       labelled("buffer", label) +
                           " is inside access and must be outside it to close: access must return "
                           "first");
    if (const int n = held(holds_))
      throw bind_error("lifetime", label,
                       labelled("buffer", label) + " is held by " + std::to_string(n) +
                           " submission" + (n == 1 ? "" : "s") +
                           " in flight and must be idle to close: wait for the fence first");
    closed_.store(true, std::memory_order_release);
    address_.store(nullptr, std::memory_order_release);
    memory.swap(memory_);
    holds_.clear();
  }
  if (live_) live_->fetch_sub(1, std::memory_order_acq_rel);
}

void Buffer::add_hold(const std::vector<BufferPtr>& buffers, const std::shared_ptr<Hold>& hold) {
  const auto lock = lifetime_lock();
  for (const BufferPtr& b : buffers) {
    auto& holds = b->holds_;
    // Expired holds are swept just before the list would grow.
    if (holds.size() == holds.capacity())
      std::erase_if(holds, [](const auto& h) { return h.expired(); });
    holds.push_back(hold);
  }
}

void Buffer::remove_hold(const std::shared_ptr<Hold>& hold) {
  const auto lock = lifetime_lock();
  const auto at = std::find_if(holds_.begin(), holds_.end(), [&](const auto& h) {
    return !h.owner_before(hold) && !hold.owner_before(h);
  });
  if (at != holds_.end()) holds_.erase(at);
}

}  // namespace accel
