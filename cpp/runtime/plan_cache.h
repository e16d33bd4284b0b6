// Plans by identity (CONTRACT 21): a graph recorded again gives the plan that is kept. Safe to
// share between threads; one compiles at a time. Nothing is evicted.
#pragma once
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

#include "runtime/runtime.h"

namespace accel {

class PlanCache {
 public:
  using Record = std::function<void(Builder&)>;
  // index: where a plan is looked for, its hex() where none is given. Tests make all collide.
  using Index = std::function<std::string(const Identity&)>;
  // Throws attr_error without a runtime.
  explicit PlanCache(RuntimePtr runtime, Index index = {});

  // Records into a fresh builder and gives the kept plan of the same canonical bytes, else compiles
  // and keeps one. Throws what record and compile throw, and keeps nothing then; lifetime when
  // closed; graph_error when record or progress calls back into this cache. A kept plan that was
  // closed is compiled again.
  PlanPtr compile(const Record& record, const CompileOptions& options = {});
  size_t size() const;  // plans kept
  bool closed() const;
  void close();  // closes all plans; again: nothing
  const RuntimePtr& runtime() const { return runtime_; }

 private:
  // Holds the lock and says whose it is; refuses the thread that has it already.
  class Turn;
  const RuntimePtr runtime_;
  const Index index_;
  std::mutex mutex_;
  std::atomic<std::thread::id> owner_{};
  std::map<std::string, std::vector<PlanPtr>> plans_;
  std::atomic<size_t> size_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace accel
