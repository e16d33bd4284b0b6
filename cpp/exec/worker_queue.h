// A queue made of one worker thread: started with the first submission, parked between submissions,
// first in first out. What a device adds (its threads, its loss) comes through WorkerHost.
#pragma once
#include <deque>
#include <thread>

#include "exec/device.h"
#include "exec/park.h"

namespace accel {

// What the queues of one device share. Outlives the device object while a worker runs.
class WorkerHost {
 public:
  explicit WorkerHost(int64_t lose_at = 0) : lose_at_(lose_at) {}
  virtual ~WorkerHost() = default;
  // Before the first submission; may throw, and is called again at the next one then.
  virtual void start() = 0;
  // On a worker's own thread, once.
  virtual void enter_worker() = 0;
  // How long waiters and idle workers spin before they sleep.
  virtual int64_t spin_ns() const = 0;

  // Counts a submission and loses the device when it is the chosen one.
  void count_submission();
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  Error lost_error() const;

  std::shared_ptr<std::atomic<int64_t>> live_buffers = std::make_shared<std::atomic<int64_t>>(0);
  std::shared_ptr<std::atomic<int64_t>> live_pools = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<int64_t> live_queues{0}, live_programs{0};

 private:
  const int64_t lose_at_;
  std::atomic<int64_t> submissions_{0};
  std::atomic<bool> lost_{false};
};

// The thread and its pending work.
class Worker {
 public:
  using Work = std::function<std::optional<Error>()>;
  explicit Worker(std::shared_ptr<WorkerHost> host);
  // Runs what is pending, then ends the thread. On the worker's own thread: lets it end by itself.
  // In a forked child: forgets it.
  ~Worker();

  // `keep` lives until the work is over; `label` is the queue's.
  FencePtr enqueue(Work work, std::vector<FencePtr> after, std::shared_ptr<void> keep,
                   const std::string& label);
  void flush(const std::function<void()>& poll);
  // Refuses while work is in flight, giving its number; false when closed before.
  bool close(const std::string& label);
  bool closed() const;
  int in_flight() const;
  bool on_own_thread() const;

 private:
  struct Job;
  struct State;
  static void loop(const std::shared_ptr<State>& state);
  static void run(State& state, Job& job);
  std::optional<Error> admit(const std::string& label);
  void stop();
  std::shared_ptr<State> s_;
  std::unique_ptr<std::thread> thread_;
};

// The handle that callers hold. A device keeps only the Worker of its default queue, so that no
// queue and device own each other.
class WorkerQueue : public Queue, public std::enable_shared_from_this<WorkerQueue> {
 public:
  // counted: the device's children include it.
  WorkerQueue(DevicePtr device, std::shared_ptr<Worker> worker, std::shared_ptr<WorkerHost> host,
              const std::string& label, bool counted);
  ~WorkerQueue() override;
  FencePtr enqueue(Worker::Work work, std::vector<FencePtr> after) override;
  void flush(const std::function<void()>& poll) override;
  void close() override;
  bool closed() const override;

 private:
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<WorkerHost> host_;
  std::atomic<bool> counted_;
  const bool default_;  // the device's own, which closes with it
};

}  // namespace accel
