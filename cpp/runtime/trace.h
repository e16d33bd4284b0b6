// Times of a plan's submissions, command by command, while somebody traces it (CONTRACT E10).
#pragma once
#include <mutex>
#include <string>
#include <vector>

#include "exec/device.h"
#include "plan/plan.h"

namespace accel {

// Shared by the plan and the submissions made while it is traced.
class Trace {
 public:
  struct Run {
    int instance = 0;                 // graph instance
    std::vector<int64_t> command_ns;  // when the first command began, then when each ended
  };
  // By the queue's thread, when a run has ended.
  void add(Run run) {
    std::lock_guard<std::mutex> lock(mutex_);
    runs_.push_back(std::move(run));
  }
  // With the plan's lock: of a submission that is traced.
  void add(FencePtr fence) { fences_.push_back(std::move(fence)); }
  // Once no further submission takes this trace: waits for all fences, whose errors stay with them.
  void wait(const std::function<void()>& poll) const {
    for (const FencePtr& fence : fences_) fence->wait_quiet(-1, poll);
  }
  // After wait().
  const std::vector<Run>& runs() const { return runs_; }

 private:
  std::mutex mutex_;
  std::vector<Run> runs_;
  std::vector<FencePtr> fences_;
};

// The runs as Chrome trace JSON: one event a submission and one a command, a thread for each graph
// instance.
std::string chrome_trace(const PlanData& plan, const std::vector<Trace::Run>& runs);

}  // namespace accel
