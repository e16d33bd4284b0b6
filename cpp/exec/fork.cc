#include "exec/fork.h"

#include <pthread.h>

#include <atomic>
#include <mutex>

namespace accel {

static std::atomic<bool> g_forked{false};

void watch_forks() {
  static std::once_flag once;
  std::call_once(once, [] {
    pthread_atfork(nullptr, nullptr, [] { g_forked.store(true, std::memory_order_relaxed); });
  });
}

bool forked() {
  return g_forked.load(std::memory_order_relaxed);
}

Error fork_error() {
  return lost_error(
      "this process was forked from one that had opened a device and has none of its threads; "
      "start workers with spawn instead of fork");
}

void check_fork() {
  if (forked()) throw fork_error();
}

}  // namespace accel
