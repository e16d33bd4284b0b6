// Settings of the emulator, the faults it found, and the failures that a test asked for.
#pragma once
#include <atomic>
#include <string>

namespace emu {

struct Settings {
  std::atomic<bool> check, flush;
  std::atomic<unsigned> seed, family, os, threads, patience_ms, grace_ms;
};
Settings& settings();

std::string environment(const char* name, const char* otherwise);
std::string live_objects();

// A fault found by the emulator: printed, counted, kept.
__attribute__((format(printf, 2, 3))) void report(const char* kind, const char* format, ...);
// Grows when the faults are cleared: what was said once may be said again.
unsigned fault_epoch();

// The macOS from whose version on objects answer to a selector: 15, or 0 for any.
unsigned since(const char* selector);

// Whether this call of that kind must fail. `code`: of the error asked for, or 1.
bool must_fail(const char* what, long* code = nullptr);

struct Counters {
  std::atomic<long> archive_hits{0}, archive_writes{0}, compiles{0}, dispatches{0};
  std::atomic<long> commits{0}, residency_commits{0}, residency_requests{0};
};
Counters& counters();
// Remembers that a kernel ran, in check mode or outside of it.
void note_run(const std::string& kernel, bool check);

// Called when check mode or the order changes, between submissions.
void forget_order();

}  // namespace emu
