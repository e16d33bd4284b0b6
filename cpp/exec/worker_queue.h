// A queue made of one worker thread: started with the first submission, parked between submissions,
// first in first out. Work of a device may go on after the worker has turned to the next; it ends
// in the order of submission. What a device adds (its threads, its loss) comes through WorkerHost.
#pragma once
#include <deque>
#include <thread>

#include "exec/device.h"
#include "exec/park.h"

namespace accel {

// What the queues of one device share. Outlives the device object while a worker runs.
class WorkerHost {
 public:
  WorkerHost(int64_t lose_at, int64_t max_bytes) : max_bytes(max_bytes), lose_at_(lose_at) {}
  virtual ~WorkerHost() = default;
  // Zeroed memory of the device; `what` names the request. Throws capacity errors.
  virtual std::shared_ptr<void> allocate(int64_t bytes, const std::string& what) = 0;
  // Before the first submission; may throw, and is called again at the next one then.
  virtual void start() = 0;
  // On a worker's own thread, once.
  virtual void enter_worker() = 0;
  // How long waiters and idle workers spin before they sleep.
  virtual int64_t spin_ns() const = 0;

  // Counts a submission and loses the device when it is the chosen one.
  void count_submission();
  bool lost() const { return lost_.load(std::memory_order_acquire); }
  void lose(const std::string& why);  // the first reason stays
  Error lost_error() const;

  const int64_t max_bytes;  // of one buffer or arena
  std::shared_ptr<std::atomic<int64_t>> live_buffers = std::make_shared<std::atomic<int64_t>>(0);
  std::shared_ptr<std::atomic<int64_t>> live_pools = std::make_shared<std::atomic<int64_t>>(0);
  std::atomic<int64_t> live_queues{0}, live_programs{0};

 private:
  const int64_t lose_at_;
  std::atomic<int64_t> submissions_{0};
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::string why_;
};

// The thread and its pending work.
class Worker {
 public:
  using Work = Queue::Work;
  using DeviceWork = Queue::DeviceWork;
  explicit Worker(std::shared_ptr<WorkerHost> host);
  // Runs what is pending, then ends the thread. On the worker's own thread: lets it end by itself.
  // In a forked child: forgets it.
  ~Worker();

  // `keep` lives until the work is over; `label` is the queue's. Work that is not `overlaps` starts
  // when all work before it has ended.
  FencePtr enqueue(DeviceWork work, bool overlaps, std::vector<FencePtr> after,
                   std::shared_ptr<void> keep, const std::string& label);
  void flush(const std::function<void()>& poll);
  // Refuses while work is in flight, giving its number; false when closed before.
  bool close(const std::string& label);
  bool closed() const;
  int in_flight() const;
  bool on_own_thread() const;
  int asleep() const;  // 1: its thread, until something happens

 private:
  struct Job;
  struct State;
  struct Running;
  class Hand;
  static void loop(const std::shared_ptr<State>& state);
  static void run(const std::shared_ptr<State>& state, Job& job);
  static void end(State& state, const std::shared_ptr<Running>& running);
  static void finish(State& state, Job& job, std::optional<Error> error);
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
  FencePtr enqueue(Work work, std::vector<FencePtr> after) override;
  FencePtr enqueue_device(DeviceWork work, std::vector<FencePtr> after) override;
  FencePtr write(void* to, std::vector<char> data, std::shared_ptr<void> keep) override;
  void flush(const std::function<void()>& poll) override;
  void close() override;
  bool closed() const override;

 private:
  FencePtr hand_over(DeviceWork work, bool overlaps, std::vector<FencePtr> after);
  std::shared_ptr<Worker> worker_;
  std::shared_ptr<WorkerHost> host_;
  std::atomic<bool> counted_;
  const bool default_;  // the device's own, which closes with it
};

}  // namespace accel
