#include "exec/worker_queue.h"

#include <system_error>

#include "exec/fork.h"

namespace accel {

void WorkerHost::count_submission() {
  const int64_t n = submissions_.fetch_add(1, std::memory_order_acq_rel) + 1;
  if (lose_at_ > 0 && n == lose_at_) lose("at submission " + std::to_string(lose_at_));
}

void WorkerHost::lose(const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (why_.empty()) why_ = why;
  lost_.store(true, std::memory_order_release);
}

Error WorkerHost::lost_error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return accel::lost_error("the device was lost " + why_ + " and must be opened again");
}

struct Worker::Job {
  DeviceWork work;
  bool overlaps;
  std::vector<FencePtr> after;
  std::shared_ptr<void> keep;
  FencePtr fence;
  FenceStats stats;
};

// A job that goes on after its work has returned. It ends when the work has returned and the device
// has said how it went, whichever comes last.
struct Worker::Running {
  Job job;
  std::optional<Error> at_once, error;  // from the work, from the device
  std::atomic<int> awaited{2};
  bool over = false;  // with the lock of the state
};

struct Worker::State {
  std::shared_ptr<WorkerHost> host;
  mutable std::mutex mutex;
  std::deque<Job> pending;
  std::deque<std::shared_ptr<Running>> running;  // in the order of submission
  bool ending = false;                           // a thread ends those in front
  std::atomic<int> n_running{0};                 // that have not ended
  FencePtr last;                                 // of the newest submission
  int in_flight = 0;
  bool closed = false;
  std::thread::id thread_id;
  std::atomic<uint32_t> arrived{
      0};  // submissions ever made; the worker sleeps while it has seen them all
  std::atomic<bool> stop{false};
  Event event;
};

Worker::Worker(std::shared_ptr<WorkerHost> host) : s_(std::make_shared<State>()) {
  s_->host = std::move(host);
}

Worker::~Worker() {
  if (forked()) {
    // The thread does not exist here, and its bookkeeping may have been caught in any state.
    (void)thread_.release();
    (void)new std::shared_ptr<State>(std::move(s_));
    return;
  }
  stop();
}

bool Worker::on_own_thread() const {
  std::lock_guard<std::mutex> lock(s_->mutex);
  return s_->thread_id == std::this_thread::get_id();
}

void Worker::stop() {
  if (!thread_) return;
  s_->stop.store(true, std::memory_order_release);
  s_->event.notify();
  if (on_own_thread()) thread_->detach();
  else thread_->join();
  thread_.reset();
}

// With the lock: why the next submission is refused, or nothing; then the threads run.
std::optional<Error> Worker::admit(const std::string& label) {
  State& s = *s_;
  if (s.closed)
    return bind_error("lifetime", "queue",
                      labelled("queue", label) + " is closed and must be open");
  s.host->count_submission();
  if (s.host->lost()) return s.host->lost_error();
  try {
    s.host->start();
    if (!thread_) thread_ = std::make_unique<std::thread>([state = s_] { loop(state); });
  } catch (const std::system_error& e) {
    return device_error(std::string("the system started no thread: ") + e.what());
  }
  return std::nullopt;
}

FencePtr Worker::enqueue(DeviceWork work, bool overlaps, std::vector<FencePtr> after,
                         std::shared_ptr<void> keep, const std::string& label) {
  State& s = *s_;
  auto fence = std::make_shared<Fence>();
  fence->set_spin(s.host->spin_ns());
  fence->set_origin(s.host.get());
  // Declared before the lock: a refused job is dropped after it.
  Job job{std::move(work), overlaps, std::move(after), std::move(keep), fence, {}};
  job.stats.queued_ns = now_ns();
  std::optional<Error> refused;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    refused = admit(label);
    if (!refused) {
      s.pending.push_back(std::move(job));
      s.last = fence;
      ++s.in_flight;
      s.arrived.fetch_add(1, std::memory_order_release);
    }
  }
  if (refused) {
    job = Job{};  // before the signal, as promised
    fence->signal(std::move(refused));
  } else {
    s.event.notify();
  }
  return fence;
}

void Worker::loop(const std::shared_ptr<State>& state) {
  State& s = *state;
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    s.thread_id = std::this_thread::get_id();
  }
  s.host->enter_worker();
  for (uint32_t seen = 0;; ++seen) {
    const auto ready = [&] {
      return s.arrived.load(std::memory_order_acquire) != seen ||
             s.stop.load(std::memory_order_acquire);
    };
    s.event.wait(ready, -1, s.host->spin_ns());
    Job job;
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      if (s.pending.empty()) return;  // stopped, and everything has run
      job = std::move(s.pending.front());
      s.pending.pop_front();
    }
    run(state, job);
  }
}

// The first error of the fences in `after`, waited for in turn; a lost device does not wait for
// others.
static std::optional<Error> wait_after(const std::vector<FencePtr>& after, const WorkerHost& host) {
  for (const FencePtr& fence : after) {
    while (!fence->wait_quiet(0.05))
      if (host.lost()) return host.lost_error();
    if (auto error = fence->error()) return error;
  }
  return std::nullopt;
}

class Worker::Hand final : public Later {
 public:
  Hand(const std::shared_ptr<State>& state, const FencePtr& fence) : state_(state), fence_(fence) {}
  Done take() override {
    ACCEL_CHECK(!running);
    running = std::make_shared<Running>();
    {
      std::lock_guard<std::mutex> lock(state_->mutex);
      state_->running.push_back(running);
    }
    state_->n_running.fetch_add(1, std::memory_order_acq_rel);
    return [state = state_, r = running](std::optional<Error> error) {
      r->error = std::move(error);
      end(*state, r);
    };
  }
  std::function<void()> far() override {
    ACCEL_CHECK(running);
    fence_->far();
    state_->event.far();
    return [state = state_, fence = fence_] {
      fence->near();
      state->event.near();
    };
  }
  std::shared_ptr<Running> running;

 private:
  const std::shared_ptr<State>& state_;
  const FencePtr& fence_;
};

static std::optional<Error> attempt(const Worker::DeviceWork& work, Later& later) {
  try {
    return work(later);
  } catch (const Error& e) { return e; } catch (const std::exception& e) {
    return Error(ErrorKind::internal, "internal", std::string("a submission threw: ") + e.what());
  }
}

void Worker::run(const std::shared_ptr<State>& state, Job& job) {
  State& s = *state;
  const auto none_runs = [&] { return s.n_running.load(std::memory_order_acquire) == 0; };
  std::optional<Error> error = wait_after(job.after, *s.host);
  if (!job.overlaps && !none_runs()) s.event.wait(none_runs);
  if (!error && s.host->lost()) error = s.host->lost_error();
  job.stats.started_ns = now_ns();
  Hand hand(state, job.fence);
  if (!error) error = attempt(job.work, hand);
  if (const auto running = std::move(hand.running)) {
    running->job = std::move(job);
    running->at_once = std::move(error);
    return end(s, running);
  }
  if (!none_runs()) s.event.wait(none_runs);  // fences signal in order
  finish(s, job, std::move(error));
}

// Whoever comes second ends the job, and with it those behind it that waited for that alone.
void Worker::end(State& s, const std::shared_ptr<Running>& running) {
  if (running->awaited.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  std::unique_lock<std::mutex> lock(s.mutex);
  running->over = true;
  if (s.ending) return;
  s.ending = true;
  while (!s.running.empty() && s.running.front()->over) {
    const std::shared_ptr<Running> front = std::move(s.running.front());
    s.running.pop_front();
    lock.unlock();
    finish(s, front->job, front->at_once ? std::move(front->at_once) : std::move(front->error));
    s.n_running.fetch_sub(1, std::memory_order_acq_rel);
    // The next submission may follow at once, also where an end came before anyone called it near.
    if (s.event.is_far()) s.event.near();
    else s.event.notify();
    lock.lock();
  }
  s.ending = false;
}

void Worker::finish(State& s, Job& job, std::optional<Error> error) {
  if (!error && s.host->lost()) error = s.host->lost_error();
  job.stats.finished_ns = now_ns();
  const FencePtr fence = std::move(job.fence);
  const FenceStats stats = job.stats;
  // What the submission held is free before its fence says so. Dropping it can end the queue
  // itself.
  job.work = nullptr;
  job.after.clear();
  FencePtr last;  // dropped after the lock
  {
    std::lock_guard<std::mutex> lock(s.mutex);
    --s.in_flight;
    if (s.last == fence) last.swap(s.last);
  }
  job.keep = nullptr;
  fence->signal(std::move(error), stats);
}

void Worker::flush(const std::function<void()>& poll) {
  FencePtr last;
  {
    std::lock_guard<std::mutex> lock(s_->mutex);
    last = s_->last;
  }
  if (last) last->wait_quiet(-1, poll);  // its error belongs to whoever submitted
}

bool Worker::close(const std::string& label) {
  {
    std::lock_guard<std::mutex> lock(s_->mutex);
    if (s_->closed) return false;
    if (const int n = s_->in_flight)
      throw bind_error("lifetime", label,
                       labelled("queue", label) + " has " + std::to_string(n) + " submission" +
                           (n == 1 ? "" : "s") +
                           " in flight and must be idle to close: flush it first");
    s_->closed = true;
  }
  stop();
  return true;
}

bool Worker::closed() const {
  std::lock_guard<std::mutex> lock(s_->mutex);
  return s_->closed;
}

int Worker::asleep() const {
  return s_->event.asleep();
}

int Worker::in_flight() const {
  std::lock_guard<std::mutex> lock(s_->mutex);
  return s_->in_flight;
}

WorkerQueue::WorkerQueue(DevicePtr of, std::shared_ptr<Worker> worker,
                         std::shared_ptr<WorkerHost> host, const std::string& name, bool counted)
    : worker_(std::move(worker)), host_(std::move(host)), counted_(counted), default_(!counted) {
  label = name;
  device = std::move(of);
  if (counted) host_->live_queues.fetch_add(1, std::memory_order_acq_rel);
}

WorkerQueue::~WorkerQueue() {
  if (counted_.exchange(false)) host_->live_queues.fetch_sub(1, std::memory_order_acq_rel);
}

FencePtr WorkerQueue::enqueue(Work work, std::vector<FencePtr> after) {
  return hand_over([work = std::move(work)](Later&) { return work(); }, false, std::move(after));
}

FencePtr WorkerQueue::enqueue_device(DeviceWork work, std::vector<FencePtr> after) {
  return hand_over(std::move(work), true, std::move(after));
}

// On the worker, when what was submitted before has ended: nothing else touches the bytes then.
FencePtr WorkerQueue::write(void* to, std::vector<char> data, std::shared_ptr<void> keep) {
  return enqueue(
      [this, to, data = std::move(data), keep = std::move(keep)]() -> std::optional<Error> {
        device->copy_in(to, data.data(), int64_t(data.size()));
        return std::nullopt;
      },
      {});
}

FencePtr WorkerQueue::hand_over(DeviceWork work, bool overlaps, std::vector<FencePtr> after) {
  if (forked()) return Fence::failed(fork_error());
  for (const FencePtr& fence : after)
    if (fence->origin() && fence->origin() != host_.get())
      return Fence::failed(bind_error(
          "foreign", "after",
          "after holds a fence of another device and must hold fences of the device of " +
              labelled("queue", label)));
  return worker_->enqueue(std::move(work), overlaps, std::move(after), shared_from_this(), label);
}

void WorkerQueue::flush(const std::function<void()>& poll) {
  check_fork();
  worker_->flush(poll);
}

void WorkerQueue::close() {
  check_fork();
  if (default_)
    throw bind_error("lifetime", "queue",
                     labelled("queue", label) +
                         " is its device's own and must stay open; it closes with the device");
  if (worker_->close(label) && counted_.exchange(false))
    host_->live_queues.fetch_sub(1, std::memory_order_acq_rel);
}

bool WorkerQueue::closed() const {
  check_fork();
  return worker_->closed();
}

}  // namespace accel
