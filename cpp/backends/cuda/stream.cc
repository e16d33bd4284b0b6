#include "backends/cuda/stream.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <utility>

#include "backends/cuda/errors.h"
#include "exec/fork.h"
#include "exec/testing.h"

namespace accel::cuda {

struct Stream::State {
  struct Ending {
    CUevent mark = nullptr;
    Done done;
    Expected expected;
    int64_t queued_ns = 0;
  };
  // Waits for it; it began when it was queued, or when what was queued before it had ended.
  CUresult wait_for(Ending& ending, int64_t begin) const;
  explicit State(const std::shared_ptr<Core>& c) : core(c), context(c->context()) {}
  ~State();

  // Before what is in the context: the core keeps its own.
  const std::shared_ptr<Core> core;
  const std::shared_ptr<Context> context;
  CUstream handle = nullptr;
  std::mutex mutex;
  std::deque<Ending> endings;
  std::vector<CUevent> unused;
  std::atomic<uint32_t> arrived{0};
  std::atomic<bool> stop{false};
  Event event;
};

Stream::State::~State() {
  if (forked()) return;
  const Current current(*context);
  if (current.result) return;
  for (const CUevent mark : unused) core->api.EventDestroy(mark);
  if (handle) core->api.StreamDestroy(handle);
}

Stream::Stream(const std::shared_ptr<Core>& core) : s_(std::make_shared<State>(core)) {
  {
    const Current current(*s_->context);
    check(current.result, "cuCtxPushCurrent", *core);
    check(core->api.StreamCreate(&s_->handle, CU_STREAM_NON_BLOCKING), "cuStreamCreate", *core);
  }
  try {
    thread_ = std::thread([state = s_] { loop(state); });
  } catch (const std::system_error& e) {
    throw device_error(std::string("the system started no thread: ") + e.what());
  }
}

Stream::~Stream() {
  if (forked()) {
    // The thread does not exist here; its handle may neither be joined nor destroyed.
    (void)new std::thread(std::move(thread_));
    (void)new std::shared_ptr<State>(s_);
    return;
  }
  s_->stop.store(true, std::memory_order_release);
  s_->event.notify();
  if (thread_.get_id() == std::this_thread::get_id()) thread_.detach();
  else thread_.join();
}

CUstream Stream::handle() const {
  return s_->handle;
}

// Looked at for a while, then slept for: most steps end before a sleeper would have woken. Where
// the usual time is longer than that while, the while is laid around the usual end.
CUresult Stream::State::wait_for(Ending& ending, int64_t begin) const {
  EndCounts& counts = end_counts();
  CUresult result = CUDA_ERROR_NOT_READY;
  const auto over = [&] {
    return (result = core->api.EventQuery(ending.mark)) != CUDA_ERROR_NOT_READY;
  };
  if (ending.expected.near) {
    counts.dozed.fetch_add(1, std::memory_order_relaxed);
    if (doze(begin, doze_of(ending.expected.usual, Core::kSpinNs), over)) {
      counts.early.fetch_add(1, std::memory_order_relaxed);
      return result;
    }
    std::exchange(ending.expected.near, nullptr)();
  }
  const bool spun = spin_for(Core::kSpinNs, over, true);
  (spun ? counts.spun : counts.slept).fetch_add(1, std::memory_order_relaxed);
  return spun ? result : core->api.EventSynchronize(ending.mark);
}

std::optional<Error> Stream::finish(State& s) {
  if (const CUresult result = s.core->api.StreamSynchronize(s.handle))
    return error_of(result, "cuStreamSynchronize", *s.core);
  return std::nullopt;
}

void Stream::settle(State& s) {
  if (const auto error = finish(s))
    s.core->lose(std::string("because nothing says when its work ends: ") + error->what());
}

void Stream::loop(const std::shared_ptr<State>& state) {
  State& s = *state;
  const Current current(*s.context);
  // Without its context the thread cannot see an end, and nobody may go on as if there were one.
  if (current.result) s.core->lose("because " + text_of(s.core->api, current.result));
  int64_t last_end = 0;
  for (uint32_t seen = 0;; ++seen) {
    s.event.wait(
        [&] {
          return s.arrived.load(std::memory_order_acquire) != seen ||
                 s.stop.load(std::memory_order_acquire);
        },
        -1, Core::kSpinNs);
    State::Ending ending;
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      if (s.endings.empty()) return;  // stopped, and everything is told
      ending = std::move(s.endings.front());
      s.endings.pop_front();
    }
    std::optional<Error> error;
    const int64_t begin = std::max(last_end, ending.queued_ns);
    if (current.result) error = s.core->lost_error();
    else if (const CUresult result = s.wait_for(ending, begin)) {
      error = error_of(result, "the device", *s.core);
      settle(s);
    }
    last_end = now_ns();
    if (ending.expected.pace && !error) ending.expected.pace->saw(last_end - begin);
    {
      std::lock_guard<std::mutex> lock(s.mutex);
      s.unused.push_back(ending.mark);
    }
    // May drop the last owner of this very stream.
    std::exchange(ending.done, nullptr)(std::move(error));
  }
}

CUevent Stream::mark() {
  {
    std::lock_guard<std::mutex> lock(s_->mutex);
    if (!s_->unused.empty()) {
      const CUevent mark = s_->unused.back();
      s_->unused.pop_back();
      return mark;
    }
  }
  CUevent mark = nullptr;
  check(s_->core->api.EventCreate(&mark, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
        "cuEventCreate", *s_->core);
  return mark;
}

void Stream::give_back(CUevent mark) {
  std::lock_guard<std::mutex> lock(s_->mutex);
  s_->unused.push_back(mark);
}

void Stream::end(CUevent mark, Done done, Expected expected) {
  // Before the mark: no end can be seen earlier.
  const int64_t queued_ns = now_ns();
  if (const CUresult result = s_->core->api.EventRecord(mark, s_->handle)) {
    const Error error = error_of(result, "cuEventRecord", *s_->core);
    settle();
    give_back(mark);
    return done(error);
  }
  {
    std::lock_guard<std::mutex> lock(s_->mutex);
    s_->endings.push_back({mark, std::move(done), std::move(expected), queued_ns});
    s_->arrived.fetch_add(1, std::memory_order_release);
  }
  s_->event.notify();
}

std::optional<Error> Stream::finish() {
  return finish(*s_);
}
void Stream::settle() {
  settle(*s_);
}

// ---------------------------------------------------------------- writes

CudaQueue::CudaQueue(DevicePtr device, std::shared_ptr<Worker> worker, std::shared_ptr<Core> core,
                     const std::string& label, bool counted, std::shared_ptr<Stream> of)
    : WorkerQueue(std::move(device), std::move(worker), core, label, counted),
      stream(std::move(of)),
      core_(std::move(core)) {}

// Above it a write goes through the pieces that all copies share, and waits for its turn there.
static constexpr size_t kMostStaged = size_t(1) << 20;
static constexpr size_t kLeastStaged = 4096;

void CudaQueue::Free::keep(size_t size, Pinned memory) {
  std::lock_guard<std::mutex> lock(mutex);
  if (size > kMost - bytes) return;  // the block goes back after the lock
  blocks.emplace(size, std::move(memory));
  bytes += size;
}

Pinned CudaQueue::staging(size_t bytes) {
  {
    std::lock_guard<std::mutex> lock(free_->mutex);
    if (const auto at = free_->blocks.find(bytes); at != free_->blocks.end()) {
      Pinned found = std::move(at->second);
      free_->blocks.erase(at);
      free_->bytes -= bytes;
      return found;
    }
  }
  return core_->pin(int64_t(bytes));
}

FencePtr CudaQueue::write(void* to, std::vector<char> data, std::shared_ptr<void> keep) {
  if (data.size() > kMostStaged) return WorkerQueue::write(to, std::move(data), std::move(keep));
  return enqueue_device(
      [this, to, data = std::move(data),
       keep = std::move(keep)](Later& later) -> std::optional<Error> {
        size_t size = kLeastStaged;
        while (size < data.size()) size *= 2;
        const std::shared_ptr<Context> context = core_->context();
        const Current current(*context);
        check(current.result, "cuCtxPushCurrent", *core_);
        const Pinned memory = staging(size);
        std::memcpy(memory.get(), data.data(), data.size());
        const CUevent mark = stream->mark();
        if (const CUresult result = core_->api.MemcpyHtoDAsync(device_pointer(to), memory.get(),
                                                               data.size(), stream->handle())) {
          stream->give_back(mark);
          return error_of(result, "cuMemcpyHtoDAsync", *core_);
        }
        // The memory is used again when the copy is over; whatever happens, not before.
        stream->end(mark,
                    [free = free_, memory, size, done = later.take()](std::optional<Error> error) {
                      free->keep(size, memory);
                      done(std::move(error));
                    });
        return std::nullopt;
      },
      {});
}

}  // namespace accel::cuda
