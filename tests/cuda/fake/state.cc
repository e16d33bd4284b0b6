#include "state.h"

#include <chrono>
#include <cstring>

#include "../../metal/emu/objects.h"
#include "fakecuda.h"

namespace fake {

State& state() {
  static auto* s = new State;
  return *s;
}

void fault(State& s, const std::string& text) {
  ++s.n_faults;
  s.faults += text + "\n";
  fprintf(stderr, "[fake-cuda] %s\n", text.c_str());
}

int counted(State& s, const std::string& function) {
  ++s.calls[function];
  if (function != "kernel") ++s.calls["*"];
  for (auto f = s.failures.begin(); f != s.failures.end(); ++f) {
    if (f->function != function && !(f->function == "*" && function != "kernel")) continue;
    if (!f->always && --f->nth) continue;
    const int code = f->code;
    s.failed += function + "\n";
    if (!f->always) s.failures.erase(f);
    return code;
  }
  return 0;
}

emu::Buffer* find(State& s, uint64_t address, size_t bytes) {
  auto at = s.memory.upper_bound(address);
  if (at == s.memory.begin()) return nullptr;
  --at;
  return address + bytes <= at->first + at->second->length ? at->second : nullptr;
}

bool is_pinned(State& s, const void* host, size_t bytes) {
  auto at = s.pinned.upper_bound(uintptr_t(host));
  if (at == s.pinned.begin()) return false;
  --at;
  return uintptr_t(host) + bytes <= at->first + at->second;
}

char* host_of(uint64_t address) {
  return reinterpret_cast<char*>(address - kBias);
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// ---------------------------------------------------------------- streams

static void loop(Stream* stream) {
  State& s = state();
  Lock lock(s.m);
  for (;;) {
    const auto ready = [&] {
      return !stream->queued.empty() && !(s.held && stream->queued.front().launch);
    };
    s.changed.wait(lock, [&] { return stream->stop || ready(); });
    if (!ready()) return;
    Operation operation = std::move(stream->queued.front());
    stream->queued.pop_front();
    stream->running = true;
    lock.unlock();
    operation.run();
    operation.run = nullptr;
    lock.lock();
    stream->running = false;
    s.changed.notify_all();
  }
}

void begin(Stream* stream) {
  stream->thread = std::thread(loop, stream);
}

void enqueue(State& s, Stream* stream, Operation operation) {
  stream->queued.push_back(std::move(operation));
  s.changed.notify_all();
}

void wait_idle(Lock& lock, State& s, const Stream* stream) {
  s.changed.wait(lock, [&] { return stream->queued.empty() && !stream->running; });
}

void wait_all(Lock& lock, State& s) {
  s.changed.wait(lock, [&] {
    for (const Stream* stream : s.streams)
      if (!stream->queued.empty() || stream->running) return false;
    return true;
  });
}

void end(Lock& lock, Stream* stream) {
  State& s = state();
  if (!s.sticky) wait_idle(lock, s, stream);
  stream->queued.clear();
  stream->stop = true;
  s.changed.notify_all();
  lock.unlock();
  stream->thread.join();
  lock.lock();
  delete stream;
}

}  // namespace fake

// ---------------------------------------------------------------- for tests

using fake::Lock;
using fake::state;

extern "C" {

void fakecuda_fail(const char* function, unsigned nth, int code) {
  Lock lock(state().m);
  if (!function) return state().failures.clear();
  state().failures.push_back({function, nth, code, nth == 0});
  state().failed.clear();
}

const char* fakecuda_failed_text(void) {
  static std::string text;
  Lock lock(state().m);
  text = state().failed;
  return text.c_str();
}

void fakecuda_hold(int on) {
  Lock lock(state().m);
  state().held = on;
  state().changed.notify_all();
}

void fakecuda_end_at_query(unsigned nth) {
  Lock lock(state().m);
  state().ends_at = nth;
  state().held = nth != 0;
  state().changed.notify_all();
}

void fakecuda_set_order(unsigned seed) {
  Lock lock(state().m);
  state().order = seed;
}

void fakecuda_forget_waits(int on) {
  Lock lock(state().m);
  state().forgets_waits = on;
}

long fakecuda_calls(const char* function) {
  Lock lock(state().m);
  return state().calls[function];
}

const char* fakecuda_live_text(void) {
  static std::string text;
  fake::State& s = state();
  Lock lock(s.m);
  text.clear();
  const auto add = [&](const char* name, size_t n) {
    if (n) text += name + (" " + std::to_string(n)) + "\n";
  };
  add("context", size_t(s.retained));
  add("memory", s.memory.size());
  add("pinned", s.pinned.size());
  add("module", s.modules.size());
  add("stream", s.streams.size());
  add("event", s.marks.size());
  add("graph", s.graphs.size());
  add("exec", s.execs.size());
  return text.c_str();
}

long fakecuda_faults(void) {
  Lock lock(state().m);
  return state().n_faults;
}
const char* fakecuda_fault_text(void) {
  static std::string text;
  Lock lock(state().m);
  text = state().faults;
  return text.c_str();
}
void fakecuda_clear_faults(void) {
  Lock lock(state().m);
  state().faults.clear();
  state().n_faults = 0;
}
const char* fakecuda_module_text(void) {
  static std::string text;
  Lock lock(state().m);
  text = state().module;
  return text.c_str();
}
const char* fakecuda_ran_text(void) {
  static std::string text;
  Lock lock(state().m);
  text = state().ran;
  return text.c_str();
}
}
