#include "fibers.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>

#include "../shim/msl_kinds.h"
#include "settings.h"

namespace emu {

__attribute__((tls_model("initial-exec"))) thread_local Worker* worker;

extern "C" __attribute__((visibility("hidden"))) void metalemu_switch(void** save, void* to);
#if defined(__x86_64__)
asm(".globl metalemu_switch\n.hidden metalemu_switch\nmetalemu_switch:\n"
    "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n"
    "  mov %rsp, (%rdi)\n  mov %rsi, %rsp\n"
    "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n  ret\n");
#else
#error "write the switch for this machine"
#endif

namespace {
// What an optional argument that is not bound refers to: the compiler may read a reference early.
alignas(64) char absent[1 << 12];
constexpr uint64_t kCanary = 0x5afe57ac0ffee123;
constexpr uintptr_t kOwnStack = 1;  // choose(): start the current lane where the caller stands
void fiber_entry() {
  worker->fiber();
}
// The mode of this thread's vector unit, which fibers share, while a group runs.
class Flushing {
 public:
  Flushing() : before_(__builtin_ia32_stmxcsr()) {
    if (settings().flush) __builtin_ia32_ldmxcsr(before_ | 0x8040);  // of results, of operands
  }
  ~Flushing() { __builtin_ia32_ldmxcsr(before_); }
  Flushing(const Flushing&) = delete;

 private:
  const unsigned before_;
};
}  // namespace

Worker::Worker() {
  const size_t memory_bytes = kThreadgroupBytes + kBeyond;
  pool_bytes_ = memory_bytes + kMaxThreads * kStack;
  pool_ = static_cast<char*>(mmap(nullptr, pool_bytes_, PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (pool_ == MAP_FAILED) abort();
  catch_page_faults();
  memory = pool_;
  stacks_ = pool_ + memory_bytes;
  // The last freed stack is the next one used, so what it holds is still in the cache.
  for (unsigned i = kMaxThreads; i-- > 0;) free_stacks_.push_back(stacks_ + i * kStack);
}

void* Worker::fresh_stack() {
  char* stack = static_cast<char*>(free_stacks_.back());
  free_stacks_.pop_back();
  lane[current].stack = stack;
  *reinterpret_cast<uint64_t*>(stack) = kCanary;
  // Staggered tops: equal offsets in every stack would all meet in the same cache sets.
  size_t number = static_cast<size_t>(stack - stacks_) / kStack;
  auto top = reinterpret_cast<uintptr_t>(stack + kStack - 64 - (number % 61) * 192);
  void** sp = reinterpret_cast<void**>(top & ~uintptr_t{15});
  *--sp = nullptr;  // keeps the stack aligned at entry
  *--sp = reinterpret_cast<void*>(fiber_entry);
  return sp - 6;
}

unsigned Worker::pick(Simdgroup& s) const {
  if (seed == 1) return __builtin_ctz(s.ready);
  if (seed == 2) return 31 - __builtin_clz(s.ready);
  unsigned r = s.rotation, turned = (s.ready >> r) | (s.ready << ((32 - r) & 31));
  return (__builtin_ctz(turned) + r) & 31;
}

bool Worker::finish_exchange(Simdgroup& s) {
  if (!s.at_exchange || (s.at_exchange | s.done) != s.all) return false;
  if (s.mixed) divergence("lanes of one simdgroup are at different simdgroup operations");
  mslrt::Exchange& x = s.exchange[s.parity];
  x.mask = s.active = s.at_exchange;
  x.reduced = 0;
  s.parity ^= 1;
  if (s.place.kind == mslrt::k_simdgroup_barrier)
    for (unsigned m = s.at_exchange; m; m &= m - 1)
      ++lane[simdgroup * 32 + __builtin_ctz(m)].simd_epoch;
  s.ready = s.at_exchange;
  s.at_exchange = 0;
  s.mixed = false;
  if (seed > 2) s.rotation = random() & 31;
  return true;
}

// The next lane of this simdgroup becomes current: its stack, or kOwnStack, or the scheduler's.
void* Worker::choose(bool own_stack) {
  Simdgroup& s = simd[simdgroup];
  do {
    if (!s.ready) continue;
    unsigned l = pick(s);
    s.ready &= ~(1u << l);
    current = simdgroup * 32 + l;
    if (s.started >> l & 1) return lane[current].sp;
    s.started |= 1u << l;
    return own_stack ? reinterpret_cast<void*>(kOwnStack) : fresh_stack();
  } while (finish_exchange(s));
  return scheduler_;
}

void Worker::leave() {
  Lane& me = lane[current];
  Simdgroup& s = simd[simdgroup];
  // The common way: lanes in their order, each with a stack by now.
  if (s.ready && seed == 1) [[likely]] {
    unsigned l = __builtin_ctz(s.ready);
    if (s.started >> l & 1) {
      s.ready &= s.ready - 1;
      current = simdgroup * 32 + l;
      metalemu_switch(&me.sp, lane[current].sp);
      return;
    }
  }
  void* to = choose(false);
  if (&lane[current] == &me && to != scheduler_) return;  // the only lane left
  metalemu_switch(&me.sp, to);
}

void Worker::run_thread() {
  mslrt::Args a;
  a.g = &shared;
  unsigned i = current;
  a.index = i;
  a.lane = i & 31;
  a.sg = i >> 5;
  a.tid[0] = i % extent.w;
  a.tid[1] = i / extent.w % extent.h;
  a.tid[2] = i / extent.w / extent.h;
  for (int c = 0; c < 3; ++c) a.tid_grid[c] = shared.tgid[c] * shared.full[c] + a.tid[c];
  entry->call(&a);
}

void Worker::fiber() {
  run_thread();
  end_thread();
}

void Worker::end_thread() {
  void* stack = lane[current].stack;
  for (;;) {
    simd[simdgroup].done |= 1u << (current & 31);
    if (*static_cast<uint64_t*>(stack) != kCanary) {
      *static_cast<uint64_t*>(stack) = kCanary;
      report("stack", "kernel '%s' needs more than %zu bytes of stack a thread", entry->name,
             kStack);
    }
    void* to = choose(true);
    if (to != reinterpret_cast<void*>(kOwnStack)) {
      free_stacks_.push_back(stack);
      void* nowhere;
      metalemu_switch(&nowhere, to);
    }
    lane[current].stack = stack;
    run_thread();
  }
}

void* Worker::threadgroup_variable(const void* tag, size_t bytes) {
  for (auto& [t, at] : variables)
    if (t == tag) return memory + at;
  size_t at = (memory_used + 15) & ~size_t{15};
  if (at + bytes > kThreadgroupBytes) {
    report("threadgroup-memory", "kernel '%s' needs %zu bytes of threadgroup memory, there are %zu",
           entry->name, at + bytes, kThreadgroupBytes);
    abort();
  }
  variables.emplace_back(tag, at);
  memory_used = at + bytes;
  memset(memory + at, 0xff, bytes);  // NaN in every float format
  return memory + at;
}

void Worker::divergence(const char* what) {
  if (failed_) return;
  failed_ = true;
  std::map<std::string, int> where;
  for (unsigned i = 0; i < threads; ++i) {
    const Simdgroup& s = simd[i / 32];
    unsigned bit = 1u << (i % 32);
    std::string place = std::string(lane[i].at.file) + ":" + std::to_string(lane[i].at.line);
    ++where[s.done & bit          ? "finished"
            : s.at_barrier & bit  ? "at threadgroup_barrier, " + place
            : s.at_exchange & bit ? "at a simdgroup operation, " + place
                                  : "running"];
  }
  std::string text;
  for (auto& [state, n] : where)
    text += (text.empty() ? "" : "; ") + std::to_string(n) + " " + state;
  report("divergence", "kernel '%s', group %u: %s (%s)", entry->name, group, what, text.c_str());
}

void Worker::begin(const Dispatch& d, unsigned index) {
  dispatch = &d;
  group = index;
  failed_ = false;
  variables.clear();
  memory_used = 0;
  epoch_threadgroup = epoch_device = 1;
  unsigned at[3] = {static_cast<unsigned>(index % d.groups.w),
                    static_cast<unsigned>(index / d.groups.w % d.groups.h),
                    static_cast<unsigned>(index / d.groups.w / d.groups.h)};
  UInt per[3] = {d.threads.w, d.threads.h, d.threads.d}, all[3] = {d.grid.w, d.grid.h, d.grid.d},
       groups[3] = {d.groups.w, d.groups.h, d.groups.d};
  for (int c = 0; c < 3; ++c) {
    shared.tgid[c] = at[c];
    shared.full[c] = per[c];
    shared.tpg[c] = std::min(per[c], all[c] - at[c] * per[c]);  // the last group may be cut
    shared.grid[c] = all[c];
    shared.groups[c] = groups[c];
  }
  extent = {shared.tpg[0], shared.tpg[1], shared.tpg[2]};
  threads = extent.w * extent.h * extent.d;
  shared.simdgroups = (threads + 31) / 32;
  for (int i = 0; i < kBuffers; ++i) {
    const Bound& b = d.bound[i];
    shared.buf[i] = b.set() ? const_cast<char*>(b.low()) : absent;
    if (size_t bytes = d.threadgroup_bytes[i]) {
      shared.tg[i] = memory + memory_used;
      memset(shared.tg[i], 0xff, bytes);
      memory_used += bytes;
    }
  }
  for (unsigned s = 0; s < shared.simdgroups; ++s) {
    Simdgroup& g = simd[s];
    unsigned n = std::min(32u, threads - s * 32);
    g.all = g.ready = n == 32 ? ~0u : (1u << n) - 1;
    g.active = g.all;
    g.started = g.at_exchange = g.at_barrier = g.done = g.parity = 0;
    g.rotation = seed > 2 ? random() & 31 : 0;
    g.mixed = false;
    g.barrier_flags = ~0u;
  }
  if (settings().check)
    for (unsigned i = 0; i < threads; ++i) lane[i].simd_epoch = 0;
}

bool Worker::is_absent(const char* p) {
  return p >= absent && p < absent + sizeof absent;
}

// When every thread stands at a barrier, or is done, all go on.
bool Worker::release_barrier() {
  unsigned waiting = 0, flags = ~0u;
  const Place* first = nullptr;
  bool done = false, differ = false;
  for (unsigned s = 0; s < shared.simdgroups; ++s) {
    Simdgroup& g = simd[s];
    if ((g.at_barrier | g.done) != g.all) return false;
    if (g.done) done = true;
    if (!g.at_barrier) continue;
    ++waiting;
    flags &= g.barrier_flags;
    for (unsigned m = g.at_barrier; m; m &= m - 1) {
      const Place& p = lane[s * 32 + __builtin_ctz(m)].at;
      if (!first) first = &p;
      differ |= p.line != first->line || p.file != first->file;
    }
  }
  if (!waiting) return false;
  if (done) divergence("threadgroup_barrier is not reached by every thread");
  if (differ) divergence("threads wait at different threadgroup_barriers");
  for (unsigned s = 0; s < shared.simdgroups; ++s) {
    Simdgroup& g = simd[s];
    g.ready = g.at_barrier;
    g.at_barrier = 0;
    g.barrier_flags = ~0u;
    if (seed > 2) g.rotation = random() & 31;
  }
  if (flags & 2) ++epoch_threadgroup;
  if (flags & 1) ++epoch_device;
  return true;
}

void Worker::run_group(const Dispatch& d, const Node& n, unsigned index) {
  const Flushing flushing;
  worker = this;
  node = &n;
  begin(d, index);
  unsigned order[kMaxSimdgroups];
  for (unsigned s = 0; s < shared.simdgroups; ++s) order[s] = s;
  for (;;) {
    if (seed == 2) std::reverse(order, order + shared.simdgroups);
    if (seed > 2) std::shuffle(order, order + shared.simdgroups, random);
    for (unsigned i = 0; i < shared.simdgroups; ++i) {
      simdgroup = order[i];
      if (!simd[simdgroup].ready) continue;
      void* to = choose(false);
      metalemu_switch(&scheduler_, to);
    }
    if (release_barrier()) continue;
    bool all_done = true;
    for (unsigned s = 0; s < shared.simdgroups; ++s) all_done &= simd[s].done == simd[s].all;
    if (!all_done) divergence("threads of a simdgroup do not reach the same operation");
    if (!all_done)  // their stacks are given back with the threads on them
      for (unsigned i = 0; i < threads; ++i)
        if ((simd[i / 32].started & ~simd[i / 32].done) >> (i % 32) & 1)
          free_stacks_.push_back(lane[i].stack);
    break;
  }
  worker = nullptr;
}

}  // namespace emu

using emu::worker;

extern "C" {
void mslemu_barrier(unsigned flags, unsigned line, const char* file) {
  emu::Worker* k = worker;
  emu::Simdgroup& s = k->simd[k->simdgroup];
  k->lane[k->current].at = {line, 0, file};
  s.at_barrier |= 1u << (k->current & 31);
  s.barrier_flags &= flags;
  k->leave();
}
mslrt::Seen mslemu_exchange(const void* v, unsigned bytes, unsigned kind, unsigned line,
                            const char* file) {
  emu::Worker* k = worker;
  emu::Simdgroup& s = k->simd[k->simdgroup];
  const unsigned l = k->current & 31;
  mslrt::Exchange* x = &s.exchange[s.parity];
  if (bytes == 4) memcpy(x->values + l * 4, v, 4);
  else memcpy(x->values + l * bytes, v, bytes);
  k->lane[k->current].at = {line, kind, file};
  if (!s.at_exchange) {
    s.place = {line, kind, file};
    if (mslrt::family_of(kind) > emu::settings().family) [[unlikely]]
      emu::report("family", "kernel '%s', %s:%u: a simdgroup operation that needs Apple family %u",
                  k->entry->name, file, line, mslrt::family_of(kind));
  } else if (s.place.line != line || s.place.kind != kind || s.place.file != file) {
    s.mixed = true;
  }
  s.at_exchange |= 1u << l;
  k->leave();
  return {x, l};
}
void mslemu_simdgroup_barrier(unsigned, unsigned line, const char* file) {
  char none = 0;
  mslemu_exchange(&none, 1, mslrt::k_simdgroup_barrier, line, file);
}
void mslemu_collective(unsigned kind, unsigned line, const char* file) {
  // The values do not need the others: only check mode waits for them, and says who is missing.
  char none = 0;
  if (emu::settings().check || emu::settings().family < mslrt::family_of(kind))
    mslemu_exchange(&none, 1, kind, line, file);
}
unsigned mslemu_lane(void) {
  return worker->current & 31;
}
unsigned mslemu_active_mask(void) {
  return worker->simd[worker->simdgroup].active;
}
void* mslemu_threadgroup_var(const void* tag, unsigned long bytes) {
  return worker->threadgroup_variable(tag, bytes);
}
}
