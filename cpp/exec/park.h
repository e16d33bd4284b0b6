// Sleeping on a 32-bit word: a futex on Linux, a small parking lot of condition variables
// elsewhere; and Event, the one way in which library threads and callers wait for a condition.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

namespace accel {

// Sleeps while `word` holds `expected`, at most `ns` nanoseconds (negative: no limit). May return
// early.
void park(std::atomic<uint32_t>& word, uint32_t expected, int64_t ns = -1);
void unpark_all(std::atomic<uint32_t>& word);

// A hint to the core that this thread spins.
inline void cpu_relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield" ::: "memory");
#endif
}

inline int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Spins until `ready()` or until `ns` have passed; true if ready. The clock is read once in many
// turns, because it costs more than a look at the word that is waited for. `yields`: gives the CPU
// away with each look at the clock, for a thread that may have been put on the CPU of the one it
// waits for. `stop`, asked with each look at the clock, ends it early.
template <class Ready, class Stop>
bool spin_for(int64_t ns, const Ready& ready, bool yields, const Stop& stop) {
  if (ready()) return true;
  if (ns <= 0) return false;
  const int64_t end = now_ns() + ns;
  do {
    for (int i = 0; i < 16; ++i) {
      cpu_relax();
      if (ready()) return true;
    }
    if (yields) std::this_thread::yield();
  } while (now_ns() < end && !stop());
  return false;
}
template <class Ready>
bool spin_for(int64_t ns, const Ready& ready, bool yields = false) {
  return spin_for(ns, ready, yields, [] { return false; });
}

// Waiting for a condition that another thread makes true before it calls notify(). Who knows that
// this will take long says so by far(), and by near() when it is about to come: between the two
// nobody spins. Both are hints: notify() alone tells, and wakes whoever sleeps.
class Event {
 public:
  void notify();
  // Those who spin go to sleep at their next look at the clock, and so do those who come.
  void far();
  // Those who sleep wake up and spin, each for its own time.
  void near();
  bool is_far() const { return phase_.load(std::memory_order_relaxed) & 1; }
  // Threads that sleep, or are about to.
  int asleep() const { return int(waiters_.load(std::memory_order_seq_cst)); }
  // True once `ready()` holds, false if `seconds` (negative: no limit) run out first. Spins
  // `spin_ns` where the end is not far, then sleeps; calls `poll`, which may throw, at least every
  // 50 ms.
  bool wait(const std::function<bool()>& ready, double seconds = -1, int64_t spin_ns = 0,
            const std::function<void()>& poll = {});

 private:
  std::atomic<uint32_t> epoch_{0};
  std::atomic<uint32_t> waiters_{0};
  std::atomic<uint32_t> phase_{0};  // odd: far; each near() makes it another even number
};

}  // namespace accel
