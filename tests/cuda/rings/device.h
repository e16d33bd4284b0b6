// A group of threads of CUDA on one thread of the host: a fiber each, which goes on until it meets
// others. Its asynchronous copies arrive at the first moment that is allowed, or at the last. Reads
// and copies must stay inside the operands, and only weights may be read before earlier_done().
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

// ---------------------------------------------------------------- words

#define __device__
#define __global__
#define __shared__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct Dim {
  unsigned x = 0, y = 0, z = 0;
};

constexpr unsigned kRoomBytes = 232448, kBehindRoom = 4096;
// Not static: what a fiber reads again after it waited may be another's.
Dim threadIdx, blockIdx, blockDim, gridDim;
alignas(128) char room[kRoomBytes + kBehindRoom];

static inline float2 make_float2(float x, float y) {
  return {x, y};
}
static inline float4 make_float4(float x, float y, float z, float w) {
  return {x, y, z, w};
}
static inline float __uint_as_float(unsigned v) {
  return __builtin_bit_cast(float, v);
}
static inline float __int_as_float(int v) {
  return __builtin_bit_cast(float, v);
}
static inline unsigned __float_as_uint(float v) {
  return __builtin_bit_cast(unsigned, v);
}
static inline float __fmaf_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
static inline float __fadd_rn(float a, float b) {
  return a + b;
}
static inline float __fmul_rn(float a, float b) {
  return a * b;
}
static inline float __fsqrt_rn(float a) {
  return __builtin_sqrtf(a);
}
static inline unsigned __byte_perm(unsigned a, unsigned b, unsigned select) {
  const unsigned long long both = (unsigned long long)b << 32 | a;
  unsigned r = 0;
  for (int i = 0; i < 4; ++i) r |= unsigned(both >> 8 * (select >> 4 * i & 7) & 255) << 8 * i;
  return r;
}
static inline unsigned min(unsigned a, unsigned b) {
  return a < b ? a : b;
}

// ---------------------------------------------------------------- threads

namespace emu {

struct Copy {
  unsigned to;
  const void* from;
  unsigned bytes;
};
struct Thread {
  jmp_buf at;
  ucontext_t first;
  std::unique_ptr<char[]> stack;
  bool started = false, done = false, waited = false;
  unsigned index = 0;
  std::deque<std::vector<Copy>> groups;
  std::vector<Copy> open;
};
struct Range {
  const char *begin, *end;
  bool early;  // a weight, or a plane of one
};
// Where threads wait for each other, and who leaves late.
struct Meeting {
  unsigned here = 0, passed = 0, slow = ~0u, turns = 0;
};

Thread* me;
jmp_buf home;
std::vector<std::unique_ptr<Thread>> threads;
std::function<void()> body;
std::vector<Range> operands;
Meeting warps[32], group;
float exchanged[1024];
bool late = true;  // copies arrive when they are waited for
unsigned random_state = 1;

[[noreturn]] inline void fail(const char* what) {
  printf("thread %u of group %u: %s\n", me ? me->index : 0, blockIdx.x, what);
  exit(1);
}

[[gnu::noinline]] inline void leave() {
  if (!_setjmp(me->at)) _longjmp(home, 1);
}
[[noreturn]] inline void fiber() {
  for (;;) {
    body();
    if (me->groups.size() > 0 && !me->open.empty()) fail("copies that nobody waits for");
    me->done = true;
    leave();
  }
}
inline unsigned random_below(unsigned n) {
  random_state = random_state * 1664525 + 1013904223;
  return (random_state >> 8) % n;
}

inline void meet(Meeting& m, unsigned of) {
  const unsigned passed = m.passed;
  if (++m.here == of) {
    m.here = 0, ++m.passed;
    return;
  }
  while (m.passed == passed) leave();
}

// All threads of the group; one warp of some sleeps behind it, and others get far ahead.
inline void meet_group(unsigned n) {
  if (group.here + 1 == n) group.slow = random_below(n / 16), group.turns = 200 + random_below(200);
  meet(group, n);
  if (me->index / 32 != group.slow) return;
  for (unsigned turns = group.turns; turns; --turns) leave();
}

inline void may_read(const void* p, unsigned bytes) {
  const auto* at = (const char*)p;
  if (size_t(at) % bytes) fail("a read that is not aligned");
  for (const Range& r : operands) {
    if (at < r.begin || at + bytes > r.end) continue;
    if (!r.early && !me->waited) fail("a read before the kernels before are done");
    return;
  }
  fail("a read outside the operands");
}
inline void run(const Copy& c) {
  if (c.from) memcpy(room + c.to, c.from, c.bytes);
  else memset(room + c.to, 0, c.bytes);
}
// From nowhere: zeros.
inline void copy(unsigned to, const void* from, unsigned bytes) {
  if (from) may_read(from, bytes);
  if (to % bytes || to + bytes > kRoomBytes) fail("a copy to a wrong place");
  if (late) me->open.push_back({to, from, bytes});
  else run({to, from, bytes});
}
inline void commit() {
  me->groups.push_back(std::move(me->open));
  me->open.clear();
}
inline void wait(int pending) {
  for (; int(me->groups.size()) > pending; me->groups.pop_front())
    for (const Copy& c : me->groups.front()) run(c);
}

inline void run_group(unsigned n) {
  for (auto& w : warps) w = {};
  group = {};
  for (unsigned i = 0; i < n; ++i) {
    Thread& t = *threads[i];
    t.done = t.waited = false;
    t.groups.clear(), t.open.clear();
  }
  long rounds = 0;
  for (unsigned left = n; left;) {
    if (++rounds > 1000000) fail("threads wait for each other for ever");
    const unsigned first = random_below(n);
    for (unsigned i = 0; i < n; ++i) {
      me = threads[(first + i) % n].get();
      if (me->done) continue;
      threadIdx.x = me->index;
      if (!_setjmp(home)) {
        if (me->started) _longjmp(me->at, 1);
        me->started = true;
        setcontext(&me->first);
      }
      if (me->done) --left;
    }
  }
  me = nullptr;
}

// A kernel over a grid of groups of n threads, each of which finds memory that others have left.
inline void launch(Dim grid, unsigned n, unsigned bytes, std::function<void()> kernel) {
  if (bytes > kRoomBytes) fail("more memory than a group has");
  while (threads.size() < n) {
    threads.push_back(std::make_unique<Thread>());
    Thread& t = *threads.back();
    t.index = unsigned(threads.size() - 1);
    constexpr size_t kStack = 65536;
    t.stack.reset(new char[kStack]);
    getcontext(&t.first);
    t.first.uc_stack.ss_sp = t.stack.get(), t.first.uc_stack.ss_size = kStack;
    t.first.uc_link = nullptr;
    makecontext(&t.first, fiber, 0);
  }
  body = std::move(kernel);
  gridDim = grid, blockDim.x = n;
  for (unsigned at = 0; at < grid.x * grid.y; ++at) {
    blockIdx = {at % grid.x, at / grid.x, 0};
    const char left = at % 2 ? 0x3f : char(0xff);
    memset(room, left, sizeof room);
    run_group(n);
    for (unsigned i = bytes; i < bytes + kBehindRoom; ++i)
      if (room[i] != left) fail("memory behind that of the group was written");
  }
}
inline void launch(unsigned groups, unsigned n, unsigned bytes, std::function<void()> kernel) {
  launch({groups, 1, 1}, n, bytes, std::move(kernel));
}

}  // namespace emu

static inline void __syncwarp() {
  emu::meet(emu::warps[emu::me->index / 32], 32);
}
static inline void __syncthreads() {
  emu::meet_group(blockDim.x);
}
static inline float __shfl_xor_sync(unsigned, float v, int mask) {
  emu::exchanged[emu::me->index] = v;
  __syncwarp();
  const float r = emu::exchanged[emu::me->index ^ unsigned(mask)];
  __syncwarp();
  return r;
}
static inline bool __all_sync(unsigned, bool v) {
  const unsigned first = emu::me->index / 32 * 32;
  emu::exchanged[emu::me->index] = v;
  __syncwarp();
  bool r = true;
  for (unsigned i = 0; i < 32; ++i) r = r && emu::exchanged[first + i] != 0.0f;
  __syncwarp();
  return r;
}
