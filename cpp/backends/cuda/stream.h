// A queue of a CUDA device: a worker that launches, a stream that runs what it launched, and a
// thread that waits for the ends and tells them.
#pragma once
#include <deque>
#include <map>

#include "backends/cuda/core.h"
#include "exec/pace.h"

namespace accel::cuda {

class Stream {
 public:
  // Throws the error of the driver.
  explicit Stream(const std::shared_ptr<Core>& core);
  // Tells all ends that are left, then lets the thread go. On that thread: it ends by itself.
  ~Stream();
  Stream(const Stream&) = delete;

  CUstream handle() const;
  // The end of everything that was queued on the stream so far: a mark is taken first, so that
  // nothing is on its way when it cannot be had, and `done` is told on the stream's thread when the
  // device is past it. In the context, by one thread at a time. Where the driver does not take the
  // mark, all of it is waited for at once and `done` told here.
  CUevent mark();
  // `pace` learns how long it took. Where `near` is given the end is expected after `usual`
  // nanoseconds of the device's time: it is slept for until shortly before, and `near` told then.
  struct Expected {
    std::shared_ptr<Pace> pace;
    int64_t usual = 0;
    std::function<void()> near;
  };
  void end(CUevent mark, Done done) { end(mark, std::move(done), Expected{}); }
  void end(CUevent mark, Done done, Expected expected);
  // Waits for everything on the stream; the error of the driver, if any. In the context.
  std::optional<Error> finish();
  // The same after a failure, so that what was queued before it has ended.
  void settle();
  void give_back(CUevent mark);

 private:
  struct State;
  static void loop(const std::shared_ptr<State>& state);
  static std::optional<Error> finish(State& state);
  static void settle(State& state);
  const std::shared_ptr<State> s_;
  std::thread thread_;
};

class CudaQueue : public WorkerQueue {
 public:
  CudaQueue(DevicePtr device, std::shared_ptr<Worker> worker, std::shared_ptr<Core> core,
            const std::string& label, bool counted, std::shared_ptr<Stream> of);
  // On the stream, from pinned memory: the worker does not wait for what runs there.
  FencePtr write(void* to, std::vector<char> data, std::shared_ptr<void> keep) override;
  const std::shared_ptr<Stream> stream;

 private:
  Pinned staging(size_t bytes);

  const std::shared_ptr<Core> core_;
  // Blocks of pinned memory that no copy uses, by their size; those beyond kMost bytes go back.
  struct Free {
    static constexpr size_t kMost = size_t(16) << 20;
    void keep(size_t size, Pinned memory);
    std::mutex mutex;
    std::multimap<size_t, Pinned> blocks;
    size_t bytes = 0;
  };
  const std::shared_ptr<Free> free_ = std::make_shared<Free>();
};

}  // namespace accel::cuda
