// Times of a plan's submissions, command by command, while somebody traces it (CONTRACT E10).
#pragma once
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace accel {

// Shared by the plan and the submissions made while it is traced.
class Trace {
 public:
  struct Run {
    int instance = 0;                 // graph instance
    std::vector<int64_t> command_ns;  // when the first command began, then when each ended
  };
  void enter() { pending_.fetch_add(1, std::memory_order_seq_cst); }
  void leave() { pending_.fetch_sub(1, std::memory_order_seq_cst); }
  bool idle() const { return pending_.load(std::memory_order_seq_cst) == 0; }
  void add(Run run) {
    std::lock_guard<std::mutex> lock(mutex_);
    runs_.push_back(std::move(run));
  }
  // Of an idle trace.
  const std::vector<Run>& runs() const { return runs_; }

 private:
  std::atomic<int64_t> pending_{0};
  std::mutex mutex_;
  std::vector<Run> runs_;
};

// The runs as Chrome trace JSON: one event a submission and one a command, a thread for each graph
// instance.
std::string chrome_trace(const PlanData& plan, const std::vector<Trace::Run>& runs);

}  // namespace accel
