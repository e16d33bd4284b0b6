// The threads of one CPU device: brief spin, then park. Each thread owns a contiguous run of
// chunks, which it takes from the front (what it prefetched past a chunk is its own next chunk),
// then steals from the back of the others. A dispatch ends when all chunks are done, not when all
// threads have arrived. Who ran a chunk never changes a result.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace accel {

class Pool {
 public:
  using Fn = void (*)(void* context, uint32_t chunk, uint32_t thread);

  // Counts the dispatching thread, which is thread 0: a pool of 1 starts no thread. Threads keep to
  // a CPU of their own when the pool has one for each CPU this process may use; a smaller pool is
  // placed by the system, because two processes that chose the same CPUs would share them while
  // others idle.
  explicit Pool(int threads);
  ~Pool();
  int threads() const { return threads_; }
  bool uses_every_cpu() const { return full_; }

  // Starts the threads, once; throws std::system_error where the system starts none, and may be
  // called again.
  void start();
  // Gives the calling thread, a queue's worker, thread 0's place.
  void enter_worker() const;

  // One dispatching thread at a time, in the order of arrival. Hold one for a whole program.
  class Turn {
   public:
    explicit Turn(Pool& pool);
    ~Turn();
    Turn(const Turn&) = delete;

   private:
    Pool& pool_;
  };
  // Memory that a thread will read in a later dispatch, whole lines of it. While the thread has
  // nothing to run it fetches them into its second cache, in this order. A range past kRanges is
  // dropped, and so is one that does not fit in a word. Within a Turn, any time.
  struct Lines {
    const void* from;
    uint32_t count;
  };
  static constexpr uint32_t kRanges = 22;
  void fetch_when_idle(uint32_t thread, const Lines* lines, size_t count);
  // Runs fn for each chunk in [0, n) and returns when all are done. Within a Turn.
  void run(uint32_t n, Fn fn, void* context);

 private:
  struct alignas(64) Run {
    std::atomic<uint64_t> v{0};
  };
  // The CPU that a pinned thread has, its number in the system (of thread 0 only during a turn: one
  // of the queues' workers), whether it runs a chunk, and whether it does so on another's CPU.
  struct alignas(64) Seat {
    std::atomic<int> cpu{-1}, number{0};
    std::atomic<bool> runs{false}, guest{false};
  };
  void enter_turn();
  void go_home(uint32_t thread);
  template <class Ready>
  bool stalled(uint32_t thread, const Ready& ready) const;
  template <class Ready>
  void help(uint32_t thread, const Ready& ready);
  // What a thread may fetch; written by the dispatching thread at any time. A range is one word
  // (address / 64, count), so no reader sees half of one, and a stale one names lines that are
  // fetched in vain: a fetch reads nothing and never faults. Ended by 0.
  struct alignas(128) Fetches {
    std::atomic<uint32_t> version{0};
    std::atomic<uint64_t> range[kRanges + 1] = {};
  };
  // How far a thread has come in them.
  struct alignas(64) Progress {
    uint32_t version = 0, range = 0, line = 0;
  };
  bool fetch_some(uint32_t thread);
  template <class Ready>
  bool wait(uint32_t thread, const Ready& ready);
  void run_slice(uint32_t base, uint32_t n);
  void drain(uint32_t generation, uint32_t thread);
  void work(uint32_t thread);
  void wake();

  const int threads_;
  bool full_ = false;
  std::vector<int> cpus_;  // the allowed ones, when pinned
  std::unique_ptr<Run[]> runs_;
  std::unique_ptr<Seat[]> seats_;
  std::unique_ptr<Fetches[]> fetches_;
  std::unique_ptr<Progress[]> progress_;  // each its thread's own
  alignas(64) std::atomic<uint32_t> done_{0};
  std::atomic<uint32_t> waiting_{0};
  alignas(64) std::atomic<uint32_t> bell_{0};
  std::atomic<int> parked_{0};
  alignas(64) Fn fn_ = nullptr;
  void* context_ = nullptr;
  uint32_t base_ = 0, n_ = 0, generation_ = 0;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;  // start, turns and exchanged seats
  std::condition_variable turn_changed_;
  uint64_t next_turn_ = 0, turn_ = 0;
  std::atomic<uint64_t> exchanges_{0};  // of seats; changes under the mutex
  std::vector<std::thread> workers_;
};

}  // namespace accel
