#include "exec/park.h"

#include <algorithm>

#include "exec/testing.h"

#if defined(__linux__) && !defined(ACCEL_PORTABLE_PARK)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace accel {

#if defined(__linux__) && !defined(ACCEL_PORTABLE_PARK)

void park(std::atomic<uint32_t>& word, uint32_t expected, int64_t ns) {
  timespec limit{};
  limit.tv_sec = time_t(ns / 1000000000);
  limit.tv_nsec = long(ns % 1000000000);
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, ns < 0 ? nullptr : &limit, nullptr, 0);
}

void unpark_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

#else

namespace {
struct Lot {
  std::mutex mutex;
  std::condition_variable changed;
};
Lot& lot_of(const void* word) {
  // Never destroyed: threads may still leave a lot while the process ends.
  static Lot* lots = new Lot[64];
  return lots[(reinterpret_cast<uintptr_t>(word) >> 6) % 64];
}
}  // namespace

void park(std::atomic<uint32_t>& word, uint32_t expected, int64_t ns) {
  Lot& lot = lot_of(&word);
  std::unique_lock<std::mutex> lock(lot.mutex);
  if (word.load(std::memory_order_seq_cst) != expected) return;
  if (ns < 0) lot.changed.wait(lock);
  else lot.changed.wait_for(lock, std::chrono::nanoseconds(ns));
}

void unpark_all(std::atomic<uint32_t>& word) {
  Lot& lot = lot_of(&word);
  // The lock orders this wake behind a thread that has compared the word and is about to sleep.
  { std::lock_guard<std::mutex> lock(lot.mutex); }
  lot.changed.notify_all();
}

#endif

void Event::notify() {
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  if (waiters_.load(std::memory_order_seq_cst)) unpark_all(epoch_);
}

void Event::far() {
  phase_.fetch_or(1, std::memory_order_seq_cst);
}

void Event::near() {
  uint32_t phase = phase_.load(std::memory_order_relaxed);
  while (!phase_.compare_exchange_weak(phase, (phase | 1) + 1, std::memory_order_seq_cst)) {}
  notify();
}

bool Event::wait(const std::function<bool()>& ready, double seconds, int64_t spin_ns,
                 const std::function<void()>& poll) {
  constexpr int64_t kPollNs = 50000000;
  const bool limited = seconds >= 0;
  // Beyond 30 years a limit is none; the product below would overflow.
  const int64_t end = limited && seconds < 1e9 ? now_ns() + int64_t(seconds * 1e9) : INT64_MAX;
  if (limited) spin_ns = std::min(spin_ns, int64_t(std::min(seconds, 1.0) * 1e9));
  uint32_t phase = phase_.load(std::memory_order_relaxed);
  const auto spin = [&](int64_t ns) { return spin_for(ns, ready, true, [&] { return is_far(); }); };
  // A near() that this thread has not spun for.
  const auto is_roused = [&] {
    const uint32_t now = phase_.load(std::memory_order_relaxed);
    return now != phase && !(now & 1);
  };
  if (spin(spin_ns)) return true;
  for (;;) {
    int64_t ns = end == INT64_MAX ? -1 : end - now_ns();
    if (end != INT64_MAX && ns <= 0) return ready();
    if (poll) ns = ns < 0 ? kPollNs : std::min(ns, kPollNs);
    // First be counted, then read the epoch, then look: a notify() that misses the count has
    // already moved the epoch, and what it announced is seen by this look. So is the phase: near()
    // changes it before its notify(), and that moved epoch, once read, orders the change before
    // this thread's look at it, however relaxed.
    waiters_.fetch_add(1, std::memory_order_seq_cst);
    const uint32_t seen = epoch_.load(std::memory_order_seq_cst);
    bool is_ready = ready();
    if (!is_ready && !is_roused()) park(epoch_, seen, ns);
    waiters_.fetch_sub(1, std::memory_order_seq_cst);
    if (is_ready || ready()) return true;
    if (is_roused()) {
      phase = phase_.load(std::memory_order_relaxed);
      end_counts().roused.fetch_add(1, std::memory_order_relaxed);
      if (spin(end == INT64_MAX ? spin_ns : std::min(spin_ns, end - now_ns()))) return true;
    }
    if (poll) poll();
  }
}

}  // namespace accel
