#include "dispatch.h"

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "check.h"
#include "fibers.h"
#include "settings.h"

namespace emu {
namespace {

std::string quoted(const Kernel& k) {
  return "kernel '" + k.name + "'";
}

std::string misuse_of_buffer(const Kernel& k, const Argument& a, const Bound& b) {
  std::string where = quoted(k) + ": buffer " + std::to_string(a.index);
  if (!b.set())
    return a.optional ? ""
                      : quoted(k) + ": nothing is bound at buffer index " + std::to_string(a.index);
  size_t have = b.high() - b.low();
  if (a.reference && have < a.size)
    return where + " holds " + std::to_string(have) + " bytes, the argument needs " +
           std::to_string(a.size);
  if (!b.buffer && a.write)
    return quoted(k) + ": setBytes at index " + std::to_string(a.index) +
           " for a writable argument";
  // Of constant memory: Apple's GPUs ask for 4, those of other Macs for up to 256.
  size_t align = a.constant_space ? 256 : std::min(16u, a.align);
  if (b.buffer && b.offset % align)
    return where + " starts at offset " + std::to_string(b.offset) + ", not a multiple of " +
           std::to_string(align);
  return "";
}

// Threads that run groups, kept between dispatches. A dispatch begins on the caller's thread at
// once; helpers join it as they wake, so a short one never waits for them.
class Crew {
 public:
  void run(unsigned groups, unsigned most, const std::function<void(Worker&, unsigned)>& each) {
    std::lock_guard<std::mutex> one(turn_);
    next_ = 0;
    groups_ = groups;
    each_ = &each;
    unsigned helpers = std::min(most, groups) - 1;
    if (helpers) {
      std::lock_guard<std::mutex> lock(m_);
      while (started_ < helpers) std::thread([this, slot = ++started_] { help(slot); }).detach();
      open_ = helpers;
      ++generation_;
      wake_.notify_all();
    }
    work(0);
    if (!helpers) return;
    std::unique_lock<std::mutex> lock(m_);
    open_ = 0;
    idle_.wait(lock, [&] { return busy_ == 0; });
  }

 private:
  void work(unsigned slot) {
    static thread_local std::unique_ptr<Worker> mine(new Worker);
    if (settings().seed > 2) mine->random.seed(settings().seed + 97 * slot);
    for (unsigned i; (i = next_++) < groups_;) (*each_)(*mine, i);
  }
  void help(unsigned slot) {
    unsigned seen = 0;
    for (;;) {
      std::unique_lock<std::mutex> lock(m_);
      wake_.wait(lock, [&] { return open_ && generation_ != seen; });
      seen = generation_;
      --open_;
      ++busy_;
      lock.unlock();
      work(slot);
      lock.lock();
      --busy_;
      idle_.notify_all();
    }
  }
  std::mutex turn_, m_;
  std::condition_variable wake_, idle_;
  std::atomic<unsigned> next_{0};
  unsigned groups_ = 0, started_ = 0, open_ = 0, busy_ = 0, generation_ = 0;
  const std::function<void(Worker&, unsigned)>* each_ = nullptr;
};

}  // namespace

std::string misuse(const Dispatch& d) {
  if (!d.pipeline) return "dispatch without a compute pipeline state";
  const Kernel& k = *d.pipeline->kernel;
  size_t total = 0;
  for (const Argument& a : k.arguments) {
    if (a.kind == "buffer") {
      std::string wrong = misuse_of_buffer(k, a, d.bound[a.index]);
      if (!wrong.empty()) return wrong;
    } else if (a.kind == "threadgroup") {
      if (!d.threadgroup_bytes[a.index])
        return quoted(k) + ": no threadgroup memory length at index " + std::to_string(a.index);
      total += d.threadgroup_bytes[a.index];
    }
  }
  for (size_t bytes : d.threadgroup_bytes)
    if (bytes % 16) return "threadgroup memory length must be a multiple of 16";
  if (total > kThreadgroupBytes) return "threadgroup memory exceeds 32768 bytes";
  size_t n = d.threads.w * d.threads.h * d.threads.d;
  size_t most = std::min<size_t>(k.max_threads, d.pipeline->max_threads);
  if (!n || n > most)
    return quoted(k) + ": " + std::to_string(n) + " threads per threadgroup, at most " +
           std::to_string(most);
  if (d.pipeline->whole_simdgroups && n % 32)
    return quoted(k) + ": " + std::to_string(n) +
           " threads per threadgroup, and its pipeline promises a multiple of 32";
  if (!d.groups.w || !d.groups.h || !d.groups.d) return "an empty grid";
  return "";
}

void run_dispatch(const Dispatch& d, const Node& node) {
  ++counters().dispatches;
  const bool check = settings().check;
  const unsigned seed = settings().seed;
  const Kernel::Build& build = d.pipeline->kernel->build(check);
  if (!build.entry) return;
  note_run(d.pipeline->kernel->name, check);
  check_begin();
  unsigned all = d.groups.w * d.groups.h * d.groups.d;
  std::vector<unsigned> order;
  if (seed > 2) {
    order.resize(all);
    for (unsigned i = 0; i < all; ++i) order[i] = i;
    std::mt19937 random(seed);
    std::shuffle(order.begin(), order.end(), random);
  }
  static auto* crew = new Crew;
  crew->run(all, check ? 1 : std::max(1u, settings().threads.load()), [&](Worker& k, unsigned i) {
    k.seed = seed;
    k.entry = build.entry;
    k.module = build.module.get();
    k.run_group(d, node, seed == 2 ? all - 1 - i : seed > 2 ? order[i] : i);
  });
}

}  // namespace emu
