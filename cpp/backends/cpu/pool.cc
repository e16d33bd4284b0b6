#include "backends/cpu/pool.h"

#include <algorithm>

#include "backends/cpu/isa.h"
#include "exec/fork.h"
#include "exec/park.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#endif

namespace accel {

static constexpr int64_t kSpinNs = 50000;
static constexpr int64_t kStallNs = 10000;  // in which a running thread is seen to advance
static constexpr uint32_t kMaxChunks = (1u << 20) - 1;  // of one generation, as packed below

// A woken worker is otherwise often put on the dispatching thread's CPU, drains the job alone and
// spins there: two threads then run at the speed of one. Where pinning is refused the thread goes
// on unpinned. `number` 0 is the calling thread.
static void move_to(int number, int cpu) {
#if defined(__linux__)
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  sched_setaffinity(number, sizeof one, &one);
#else
  (void)number, (void)cpu;
#endif
}

// Whether the thread has the CPU that it was given, and no other. If not, somebody else has set its
// mask, which then stays as it is.
static bool has_cpu(int number, int cpu) {
#if defined(__linux__)
  cpu_set_t mask;
  return sched_getaffinity(number, sizeof mask, &mask) == 0 && CPU_COUNT(&mask) == 1 &&
         CPU_ISSET(cpu, &mask);
#else
  (void)number, (void)cpu;
  return false;
#endif
}

static int own_number() {
#if defined(__linux__)
  static thread_local const int number = int(syscall(SYS_gettid));
  return number;
#else
  return 0;
#endif
}

// Processor time of a thread of this process, -1 where the system does not say.
static int64_t processor_ns(int number) {
#if defined(__linux__)
  timespec t;
  const clockid_t clock = clockid_t(~unsigned(number) << 3 | 6);  // as pthread_getcpuclockid has it
  if (clock_gettime(clock, &t) == 0) return t.tv_sec * int64_t(1000000000) + t.tv_nsec;
#endif
  (void)number;
  return -1;
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

Pool::Pool(int threads)
    : threads_(threads),
      runs_(new Run[size_t(threads)]),
      seats_(new Seat[size_t(threads)]),
      fetches_(new Fetches[size_t(threads)]),
      progress_(new Progress[size_t(threads)]) {
  full_ = threads >= usable_cpus();
  cpus_ = allowed_cpus();
  if (threads < 2 || int(cpus_.size()) != threads) cpus_.clear();
  for (size_t t = 0; t < cpus_.size(); ++t) seats_[t].cpu.store(cpus_[t]);
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

// The pool that the thread is a queue's worker of, and the exchanges before it took its place.
static thread_local const Pool* t_pool = nullptr;
static thread_local uint64_t t_exchanges = 0;

void Pool::enter_worker() const {
  if (cpus_.empty()) return;
  t_pool = this, t_exchanges = ~uint64_t(0);  // the first turn looks again
  move_to(0, seats_[0].cpu.load(std::memory_order_relaxed));
}

Pool::Turn::Turn(Pool& pool) : pool_(pool) {
  std::unique_lock<std::mutex> lock(pool.mutex_);
  const uint64_t mine = pool.next_turn_++;
  pool.turn_changed_.wait(lock, [&] { return pool.turn_ == mine; });
  if (t_pool == &pool) pool.enter_turn();
}

Pool::Turn::~Turn() {
  {
    std::lock_guard<std::mutex> lock(pool_.mutex_);
    ++pool_.turn_;
    pool_.seats_[0].number.store(0, std::memory_order_relaxed);
  }
  pool_.turn_changed_.notify_all();
}

// ---------------------------------------------------------------- CPUs shared with others
// A pinned thread that another process keeps from running holds its chunk, or the whole turn, for
// some milliseconds, while the CPU of the thread that waits for it is idle. The waiter gives its
// own CPU for that long; a thread whose mask somebody else has set is left alone. Numbers of
// threads are used only where the thread cannot have ended: the pool's live as long as it, and
// thread 0's is gone, under the mutex, when its turn ends.

void Pool::enter_turn() {
  seats_[0].number.store(own_number(), std::memory_order_relaxed);
  const uint64_t exchanges = exchanges_.load(std::memory_order_relaxed);
  if (t_exchanges != exchanges) move_to(0, seats_[0].cpu.load(std::memory_order_relaxed));
  t_exchanges = exchanges;
}

// Whether a thread's processor time stands still while nothing changes for the caller.
template <class Ready>
bool Pool::stalled(uint32_t thread, const Ready& ready) const {
  const int number = seats_[thread].number.load(std::memory_order_relaxed);
  if (!number) return false;
  const int64_t before = processor_ns(number);
  if (before < 0 || spin_for(kStallNs, ready)) return false;
  const int64_t after = processor_ns(number);
  return after >= 0 && after - before < kStallNs / 10;
}

// Before `thread` sleeps. The dispatching thread lends its CPU for one chunk; a worker without work
// takes the dispatching thread's place, for good.
template <class Ready>
void Pool::help(uint32_t thread, const Ready& ready) {
  if (cpus_.empty()) return;
  Seat& mine = seats_[thread];
  for (int t = 1; thread == 0 && t < threads_; ++t) {
    Seat& seat = seats_[t];
    if (!seat.runs.load(std::memory_order_relaxed) || !stalled(uint32_t(t), ready)) continue;
    const int number = seat.number.load(std::memory_order_relaxed);
    const int here = mine.cpu.load(std::memory_order_relaxed);
    if (!has_cpu(number, seat.cpu.load(std::memory_order_relaxed)) || !has_cpu(0, here)) continue;
    move_to(number, here);
    return seat.guest.store(true, std::memory_order_relaxed);
  }
  const uint64_t exchanges = exchanges_.load(std::memory_order_relaxed);
  if (thread == 0 || !stalled(0, ready)) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  // Of several workers that saw it stand still, one helps.
  const int other = seats_[0].number.load(std::memory_order_relaxed);
  if (!other || exchanges_.load(std::memory_order_relaxed) != exchanges) return;
  const int here = mine.cpu.load(std::memory_order_relaxed);
  const int there = seats_[0].cpu.load(std::memory_order_relaxed);
  const bool guest = mine.guest.load(std::memory_order_relaxed);
  if (!has_cpu(other, there) || !has_cpu(0, guest ? there : here)) return;
  exchanges_.store(exchanges + 1, std::memory_order_relaxed);
  seats_[0].cpu.store(here, std::memory_order_relaxed);
  mine.cpu.store(there, std::memory_order_relaxed);
  mine.guest.store(false, std::memory_order_relaxed);
  move_to(other, here);
  move_to(0, there);
}

// A guest goes back to its own CPU.
void Pool::go_home(uint32_t thread) {
  Seat& seat = seats_[thread];
  if (!seat.guest.load(std::memory_order_relaxed)) return;
  seat.guest.store(false, std::memory_order_relaxed);
  move_to(0, seat.cpu.load(std::memory_order_relaxed));
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

// ---------------------------------------------------------------- idle threads

static constexpr int kCountBits = 22;   // of a range: 256 MiB
static constexpr uint32_t kAtOnce = 4;  // lines between two looks for work

void Pool::fetch_when_idle(uint32_t thread, const Lines* lines, size_t count) {
  Fetches& f = fetches_[thread];
  uint32_t n = 0;
  for (size_t i = 0; i < count && n < kRanges; ++i) {
    const uint64_t line = uint64_t(reinterpret_cast<uintptr_t>(lines[i].from)) / 64;
    if (line >> (64 - kCountBits) || lines[i].count >> kCountBits || !lines[i].count) continue;
    f.range[n++].store(line << kCountBits | lines[i].count, std::memory_order_relaxed);
  }
  f.range[n].store(0, std::memory_order_relaxed);
  f.version.store(f.version.load(std::memory_order_relaxed) + 1, std::memory_order_release);
}

// Fetches a few lines; false where none are left.
bool Pool::fetch_some(uint32_t thread) {
  Fetches& f = fetches_[thread];
  Progress& at = progress_[thread];
  const uint32_t version = f.version.load(std::memory_order_acquire);
  if (version != at.version) at = {version, 0, 0};
  const uint64_t range = f.range[at.range].load(std::memory_order_relaxed);
  if (!range) return false;
  const uint32_t count = range & ((1u << kCountBits) - 1), end = std::min(count, at.line + kAtOnce);
  const uint64_t base = range >> kCountBits;
  for (; at.line < end; ++at.line)
    __builtin_prefetch(reinterpret_cast<const void*>((base + at.line) * 64), 0, 2);
  if (at.line >= count) ++at.range, at.line = 0;
  return true;
}

// As spin_for, but memory is fetched first.
template <class Ready>
bool Pool::wait(uint32_t thread, const Ready& ready) {
  while (!ready())
    if (!fetch_some(thread)) return spin_for(kSpinNs, ready);
  return true;
}

// ---------------------------------------------------------------- dispatches

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
  while (!wait(0, all_done)) {
    help(0, all_done);
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
      seats_[thread].runs.store(true, std::memory_order_relaxed);
      fn_(context_, base_ + (own ? next : end - 1), thread);
      if (done_.fetch_add(1, std::memory_order_seq_cst) + 1 == n &&
          waiting_.load(std::memory_order_seq_cst))
        unpark_all(done_);
      seats_[thread].runs.store(false, std::memory_order_relaxed);
      go_home(thread);
      v = run.load(std::memory_order_acquire);
    }
  }
}

void Pool::work(uint32_t thread) {
  Seat& seat = seats_[thread];
  if (!cpus_.empty()) move_to(0, seat.cpu.load(std::memory_order_relaxed));
  seat.number.store(own_number(), std::memory_order_relaxed);
  uint32_t seen = 0, generation = 0;
  const auto called = [&] {
    generation = uint32_t(runs_[thread].v.load(std::memory_order_seq_cst) >> 40);
    return generation != seen || stop_.load(std::memory_order_seq_cst);
  };
  for (;;) {
    while (!wait(thread, called)) {
      help(thread, called);
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
