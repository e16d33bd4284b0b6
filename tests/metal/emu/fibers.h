// A threadgroup on one thread of the host: each of its threads is a fiber with a stack of its own.
// A thread runs until a barrier or an exchange; there it goes on to the next lane of its simdgroup
// directly, and only a simdgroup that waits for others comes back to the scheduler.
#pragma once
#include <random>
#include <vector>

#include "dispatch.h"

namespace emu {

constexpr unsigned kMaxThreads = 1024, kMaxSimdgroups = 32;
constexpr size_t kStack = 64 << 10;

struct Place {  // of a barrier or an exchange
  unsigned line = 0, kind = 0;
  const char* file = "";
};
struct Lane {
  void* sp = nullptr;
  void* stack = nullptr;
  Place at;
  unsigned simd_epoch = 0;  // simdgroup barriers passed
};
struct Simdgroup {
  // A bit a lane. Lanes that can run; of these, `started` ones have a stack.
  unsigned ready, started, at_exchange, at_barrier, done, all;
  unsigned parity;         // which of the two exchanges is being filled
  unsigned rotation;       // where a shuffled order begins
  bool mixed;              // lanes stand at different exchanges
  Place place;             // of the first lane to arrive
  unsigned barrier_flags;  // what every lane's barrier orders
  unsigned active;         // lanes of the last exchange
  mslrt::Exchange exchange[2];
};

struct Worker {
  Worker();
  void run_group(const Dispatch& d, const Node& node, unsigned index);

  const Dispatch* dispatch = nullptr;
  const Node* node = nullptr;
  const mslrt::Entry* entry = nullptr;
  const Module* module = nullptr;
  unsigned group = 0, threads = 0, current = 0, simdgroup = 0, seed = 1;
  unsigned epoch_threadgroup = 1, epoch_device = 1;  // barriers passed, by what they order
  char* memory;                                      // of the threadgroup
  size_t memory_used = 0;
  std::vector<std::pair<const void*, size_t>> variables;
  Lane lane[kMaxThreads];
  Simdgroup simd[kMaxSimdgroups];
  mslrt::Group shared;
  Size3 extent{};  // of this group, which may be cut at the edge of the grid
  std::mt19937 random;

  bool owns(const char* p) const { return p >= pool_ && p < pool_ + pool_bytes_; }
  bool in_threadgroup_memory(const char* p) const {
    return p >= memory && p < memory + kThreadgroupBytes + kBeyond;
  }
  static bool is_absent(const char* p);
  [[noreturn]] void fiber();
  [[noreturn]] void end_thread();  // of the kernel: the fiber goes on with another, or ends
  void leave();                    // the current lane waits: run something else
  void* threadgroup_variable(const void* tag, size_t bytes);
  void divergence(const char* what);

 private:
  static constexpr size_t kBeyond = 65536;  // past the memory: still known as its overflow
  void* choose(bool own_stack);
  void* fresh_stack();
  unsigned pick(Simdgroup& s) const;
  bool finish_exchange(Simdgroup& s);
  void begin(const Dispatch& d, unsigned index);
  void run_thread();
  bool release_barrier();
  void* scheduler_ = nullptr;
  char *pool_, *stacks_;
  size_t pool_bytes_;
  std::vector<void*> free_stacks_;
  bool failed_ = false;
};

// The worker of this thread of the host, while it runs a group.
extern __attribute__((tls_model("initial-exec"))) thread_local Worker* worker;

void catch_page_faults();

}  // namespace emu
