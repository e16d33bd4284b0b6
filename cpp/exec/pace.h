// How long work usually takes, and sleeping through most of it where nobody signals its end.
// Correctness depends on none of it: whoever uses it looks at the end itself.
#pragma once
#include <algorithm>

#include "exec/park.h"

namespace accel {

// Of the runs of one program. One thread writes at a time; any may read.
class Pace {
 public:
  // The shorter of the last two: one that something else held up does not count, and what becomes
  // shorter is followed at once. 0 before there are two; the first often has something to load.
  int64_t usual() const {
    return std::min(last_.load(std::memory_order_relaxed), before_.load(std::memory_order_relaxed));
  }
  void saw(int64_t ns) {
    before_.store(last_.load(std::memory_order_relaxed), std::memory_order_relaxed);
    last_.store(ns, std::memory_order_relaxed);
  }

 private:
  std::atomic<int64_t> last_{0}, before_{0};
};

// Until when, from the beginning, to sleep, and how long at a time.
struct Doze {
  int64_t ns = 0, nap_ns = 0;
};

// For work that usually takes longer than it would be spun for. It is slept for until a tenth of
// the usual time and 300 us before its end: runs differ, and naps end late, by 50 us of the
// system's own slack and 50 us of waking, and two more threads are to be woken behind this one. But
// no earlier than half the spin before it, so that the spin covers as much behind the usual end as
// before it. An end that comes early is seen after the nap that it falls into: late by a tenth of
// the usual time at most, and by 50 ms, and what the system adds.
inline Doze doze_of(int64_t usual_ns, int64_t spin_ns) {
  constexpr int64_t kLateNs = 300000, kMostNapNs = 50000000;
  if (usual_ns <= spin_ns) return {};
  const int64_t lead = std::min(usual_ns / 10 + kLateNs, spin_ns / 2);
  return {usual_ns - lead, std::min(usual_ns / 10, kMostNapNs)};
}

// Sleeps until `how.ns` after `begin`, a time of now_ns(). Asks `over` before each nap; true as
// soon as that is.
template <class Over>
bool doze(int64_t begin, const Doze& how, const Over& over) {
  for (;;) {
    const int64_t left = begin + how.ns - now_ns();
    if (left <= 0) return false;
    if (over()) return true;
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(left, how.nap_ns)));
  }
}

}  // namespace accel
