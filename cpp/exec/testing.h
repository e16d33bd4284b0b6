// What tests ask of executors that nobody else may.
#pragma once
#include <atomic>
#include <cstdint>

namespace accel {

// Programs of a GPU that are compiled from now on leave out their nth barrier, from 1 in the order
// of encoding, or with -1 the wait for what was submitted before them; 0: none. `placed` is how
// many the last one compiled has.
struct BarrierTest {
  std::atomic<int64_t> left_out{0}, placed{0};
};
BarrierTest& barrier_test();

// How the ends of submissions to CUDA devices were seen so far.
struct EndCounts {
  std::atomic<int64_t> dozed{0};  // were slept for at first, by their usual time
  std::atomic<int64_t> early{0};  // of those: seen between two naps, before the usual time
  std::atomic<int64_t> spun{0}, slept{0};
  std::atomic<int64_t> roused{0};  // threads that slept and were told that an end is near
};
EndCounts& end_counts();

}  // namespace accel
