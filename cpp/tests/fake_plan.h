// Hand-made plans over a kernel table of the tests' own, so that runtime tests need neither
// operators nor planner.
#pragma once
#include <atomic>
#include <chrono>
#include <thread>

#include "backends/cpu/device.h"
#include "runtime/runtime.h"

#if defined(__SANITIZE_THREAD__)
#define ACCEL_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ACCEL_TEST_TSAN 1
#endif
#endif

namespace fake {

using namespace accel;
using accel_cpu::KernelArgs;
using accel_cpu::u32;

struct Params {
  u32 n, chunks;
};
inline const Params& params_of(const void* p) {
  return *static_cast<const Params*>(p);
}
inline u32 chunks_of(const void* p, u32) {
  return params_of(p).chunks;
}

// "gate": holds the queue's thread until opened; started counts those that have arrived.
inline std::atomic<bool>& gate() {
  static std::atomic<bool> open{true};
  return open;
}
inline std::atomic<int>& gate_started() {
  static std::atomic<int> n{0};
  return n;
}
inline void wait_gate(const KernelArgs*, u32, u32, void*) {
  ++gate_started();
  while (!gate().load()) std::this_thread::sleep_for(std::chrono::microseconds(100));
}

// "add": out[i] = x[i] + scalar, cut into chunks.
inline void add_scalar(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const u32 n = params_of(a->params).n;
  const u32* x = static_cast<const u32*>(a->buf[0]);
  u32* out = static_cast<u32*>(a->buf[1]);
  const u32 end = u32(uint64_t(n) * (chunk + 1) / n_chunks);
  for (u32 i = u32(uint64_t(n) * chunk / n_chunks); i < end; ++i) out[i] = x[i] + a->scalar[0];
}

// "sum": phase 0 leaves one partial sum a chunk in the shared scratch, phase 1 adds them up.
inline void sum_part(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const u32 n = params_of(a->params).n;
  u32* own = static_cast<u32*>(local);
  *own = 0;
  const u32 end = u32(uint64_t(n) * (chunk + 1) / n_chunks);
  for (u32 i = u32(uint64_t(n) * chunk / n_chunks); i < end; ++i)
    *own += static_cast<const u32*>(a->buf[0])[i];
  static_cast<u32*>(a->shared)[chunk] = *own;
}
inline u32 one_chunk(const void*, u32) {
  return 1;
}
inline void sum_total(const KernelArgs* a, u32, u32, void*) {
  u32 total = 0;
  for (u32 i = 0; i < params_of(a->params).chunks; ++i) total += static_cast<u32*>(a->shared)[i];
  *static_cast<u32*>(a->buf[1]) = total;
}
inline accel_cpu::u64 sum_shared(const void* p) {
  return params_of(p).chunks * 4;
}
inline accel_cpu::u64 sum_local(const void*) {
  return 4;
}

// "copy": out[i] = x[i] for n words.
inline void copy_words(const KernelArgs* a, u32, u32, void*) {
  for (u32 i = 0; i < params_of(a->params).n; ++i)
    static_cast<u32*>(a->buf[1])[i] = static_cast<const u32*>(a->buf[0])[i];
}
inline void nothing(const KernelArgs*, u32, u32, void*) {}

inline const accel_cpu::KernelTable& table() {
  static const accel_cpu::Kernel kernels[] = {
      {"gate", {{one_chunk, wait_gate}, {nullptr, nullptr}}, nullptr, nullptr},
      {"add", {{chunks_of, add_scalar}, {nullptr, nullptr}}, nullptr, nullptr},
      {"sum", {{chunks_of, sum_part}, {one_chunk, sum_total}}, sum_shared, sum_local},
      {"copy", {{one_chunk, copy_words}, {nullptr, nullptr}}, nullptr, nullptr},
      {"nothing", {{one_chunk, nothing}, {nullptr, nullptr}}, nullptr, nullptr},
      {nullptr, {{nullptr, nullptr}, {nullptr, nullptr}}, nullptr, nullptr},
  };
  static const accel_cpu::Kernel* const groups[] = {kernels, nullptr};
  static const accel_cpu::KernelTable t = {"base", "base", groups};
  return t;
}

inline DevicePtr open(const CpuOptions& options = {}) {
  return open_cpu_with(table(), options);
}

inline DevicePtr open_threads(int threads, int64_t lose_at = 0) {
  CpuOptions options;
  options.threads = threads, options.lose_at = lose_at;
  return open(options);
}

class PlanMaker {
 public:
  explicit PlanMaker(const std::string& label) { p.label = p.graph.label = label; }
  int port(const std::string& name, PortKind kind, DType dtype, const Shape& shape) {
    p.graph.ports.push_back({name, kind, dtype, shape, "plain", {}});
    return int(p.graph.ports.size()) - 1;
  }
  int scalar(const std::string& name, ScalarKind kind) {
    p.graph.scalars.push_back({name, kind, {}});
    return int(p.graph.scalars.size()) - 1;
  }
  // A used range of a port; count 0: the whole.
  Place slot(int port, bool written, int64_t begin = 0, int64_t count = 0) {
    const PortDesc& d = p.graph.ports[size_t(port)];
    if (!count) count = d.shape.elements();
    p.slots.push_back({port, begin, count, !written, written});
    return {Place::port, int(p.slots.size()) - 1, 0, count * size_of(d.dtype)};
  }
  Place arena(int64_t offset, int64_t bytes) {
    if (p.memory.transient_bytes < offset + bytes) p.memory.transient_bytes = offset + bytes;
    return {Place::arena, 0, offset, bytes};
  }
  Place frequencies(int scalar, int64_t rotary_dim) {
    p.tables.push_back({scalar, rotary_dim});
    return {Place::table, int(p.tables.size()) - 1, 0, rotary_dim / 2 * 4};
  }
  void command(const char* kernel, std::vector<Place> operands, Params params,
               std::vector<int> scalars = {}) {
    static std::vector<std::unique_ptr<KernelRow>> rows;
    rows.push_back(std::make_unique<KernelRow>(KernelRow{Backend::cpu, kernel, always}));
    Command c;
    c.row = rows.back().get();
    c.operands = std::move(operands);
    c.params = {params.n, params.chunks};
    c.scalars = std::move(scalars);
    c.dispatch = int(p.commands.size());
    p.commands.push_back(std::move(c));
  }
  PlanData p;
};

// y = x + k, over n words, in `chunks` chunks; gated: waits for the gate first.
inline PlanData add_plan(u32 n, u32 chunks, bool gated = false) {
  PlanMaker m("add");
  const int x = m.port("x", PortKind::Input, DType::U32, {n});
  const int y = m.port("y", PortKind::Output, DType::U32, {n});
  const int k = m.scalar("k", ScalarKind::U32);
  if (gated) m.command("gate", {}, {0, 1});
  const Place from = m.slot(x, false), to = m.slot(y, true);
  m.command("add", {from, to}, {n, chunks}, {k});
  return m.p;
}

inline BufferView all_of(const BufferPtr& b) {
  return {b, b->dtype, 0, b->count};
}
inline u32* words(const BufferPtr& b) {
  return static_cast<u32*>(b->host());
}

// The code of a fence's error, "none" without one.
inline std::string code_of(const FencePtr& f) {
  const std::optional<Error> e = f->error();
  return e ? e->code : "none";
}

// Closes the gate for a scope.
struct ClosedGate {
  ClosedGate() { gate() = false, gate_started() = 0; }
  ~ClosedGate() { gate() = true; }
  void open() { gate() = true; }
  void wait_started() {
    while (!gate_started().load()) std::this_thread::yield();
  }
};

}  // namespace fake
