#include "backends/cpu/pool.h"

#include <algorithm>

#include "backends/cpu/isa.h"
#include "exec/fork.h"
#include "exec/park.h"

#if defined(__linux__)
#include <pthread.h>
#include <sched.h>
#endif

namespace accel {

static constexpr int64_t kSpinNs = 50000;
static constexpr uint32_t kMaxChunks = (1u << 20) - 1;  // of one generation, as packed below

// A woken worker is otherwise often put on the dispatching thread's CPU, drains the job alone and
// spins there: two threads then run at the speed of one. Where pinning is refused the thread goes
// on unpinned.
static void pin_to(int cpu) {
#if defined(__linux__)
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  pthread_setaffinity_np(pthread_self(), sizeof one, &one);
#else
  (void)cpu;
#endif
}

static std::vector<int> allowed_cpus() {
  std::vector<int> cpus;
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    for (int c = 0; c < CPU_SETSIZE; ++c)
      if (CPU_ISSET(c, &allowed)) cpus.push_back(c);
#endif
  return cpus;
}

Pool::Pool(int threads) : threads_(threads), runs_(new Run[size_t(threads)]) {
  full_ = threads >= usable_cpus();
  cpus_ = allowed_cpus();
  if (threads < 2 || int(cpus_.size()) != threads) cpus_.clear();
}

Pool::~Pool() {
  if (forked()) {
    // The threads do not exist here: forget them.
    (void)new std::vector<std::thread>(std::move(workers_));
    return;
  }
  stop_.store(true, std::memory_order_seq_cst);
  wake();
  for (std::thread& w : workers_) w.join();
}

void Pool::start() {
  std::lock_guard<std::mutex> lock(mutex_);
  workers_.reserve(size_t(threads_));
  while (int(workers_.size()) + 1 < threads_) {
    const uint32_t thread = uint32_t(workers_.size()) + 1;
    workers_.emplace_back([this, thread] { work(thread); });
  }
}

void Pool::enter_worker() const {
  if (!cpus_.empty()) pin_to(cpus_[0]);
}

Pool::Turn::Turn(Pool& pool) : pool_(pool) {
  std::unique_lock<std::mutex> lock(pool.mutex_);
  const uint64_t mine = pool.next_turn_++;
  pool.turn_changed_.wait(lock, [&] { return pool.turn_ == mine; });
}

Pool::Turn::~Turn() {
  {
    std::lock_guard<std::mutex> lock(pool_.mutex_);
    ++pool_.turn_;
  }
  pool_.turn_changed_.notify_all();
}

void Pool::run(uint32_t n, Fn fn, void* context) {
  if (threads_ == 1 || n == 1) {
    for (uint32_t i = 0; i < n; ++i) fn(context, i, 0);
    return;
  }
  fn_ = fn, context_ = context;
  for (uint32_t base = 0; base < n; base += kMaxChunks)
    run_slice(base, std::min(n - base, kMaxChunks));
}

// A run packs (generation 24, end 20, next 20) and is published after the fields of the job. A
// worker reads those only after it has taken a chunk by a compare-exchange, and the dispatcher
// rewrites them only when no chunk is outstanding. A generation that comes round again is harmless:
// a chunk can be taken only from the live job.
void Pool::run_slice(uint32_t base, uint32_t n) {
  const uint64_t T = uint64_t(threads_);
  base_ = base, n_ = n;
  done_.store(0, std::memory_order_relaxed);
  generation_ = (generation_ + 1) & 0xFFFFFF;
  for (uint64_t t = T; t-- > 0;) {
    const uint64_t begin = n * t / T, end = n * (t + 1) / T;
    runs_[t].v.store(uint64_t(generation_) << 40 | end << 20 | begin, std::memory_order_seq_cst);
  }
  if (parked_.load(std::memory_order_seq_cst)) wake();
  drain(generation_, 0);
  const auto all_done = [&] { return done_.load(std::memory_order_acquire) == n; };
  while (!spin_for(kSpinNs, all_done)) {
    waiting_.store(1, std::memory_order_seq_cst);
    const uint32_t seen = done_.load(std::memory_order_seq_cst);
    if (seen != n) park(done_, seen);
    waiting_.store(0, std::memory_order_relaxed);
  }
}

void Pool::drain(uint32_t generation, uint32_t thread) {
  const uint32_t T = uint32_t(threads_);
  for (uint32_t k = 0; k < T; ++k) {
    const bool own = k == 0;
    std::atomic<uint64_t>& run = runs_[(thread + k) % T].v;
    uint64_t v = run.load(std::memory_order_acquire);
    for (;;) {
      const uint32_t end = uint32_t(v >> 20) & 0xFFFFF, next = uint32_t(v) & 0xFFFFF;
      if (uint32_t(v >> 40) != generation || next >= end) break;
      if (!run.compare_exchange_weak(v, own ? v + 1 : v - (1u << 20), std::memory_order_acq_rel))
        continue;
      const uint32_t n = n_;
      fn_(context_, base_ + (own ? next : end - 1), thread);
      if (done_.fetch_add(1, std::memory_order_seq_cst) + 1 == n &&
          waiting_.load(std::memory_order_seq_cst))
        unpark_all(done_);
      v = run.load(std::memory_order_acquire);
    }
  }
}

void Pool::work(uint32_t thread) {
  if (!cpus_.empty()) pin_to(cpus_[thread]);
  uint32_t seen = 0, generation = 0;
  const auto called = [&] {
    generation = uint32_t(runs_[thread].v.load(std::memory_order_seq_cst) >> 40);
    return generation != seen || stop_.load(std::memory_order_seq_cst);
  };
  for (;;) {
    while (!spin_for(kSpinNs, called)) {
      const uint32_t bell = bell_.load(std::memory_order_seq_cst);
      parked_.fetch_add(1, std::memory_order_seq_cst);
      if (!called()) park(bell_, bell);
      parked_.fetch_sub(1, std::memory_order_seq_cst);
    }
    if (stop_.load(std::memory_order_acquire)) return;
    seen = generation;
    drain(generation, thread);
  }
}

void Pool::wake() {
  bell_.fetch_add(1, std::memory_order_seq_cst);
  unpark_all(bell_);
}

}  // namespace accel
