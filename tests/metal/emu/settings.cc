#include "settings.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "metalemu.h"

namespace emu {
namespace {

struct Faults {
  std::mutex m;
  long count = 0;
  unsigned epoch = 1;
  std::string text;
};
Faults& faults() {
  static auto* f = new Faults;
  return *f;
}

struct Failure {
  unsigned nth;  // 0: every call
  unsigned seen = 0;
  long code = 1;
};
struct Failures {
  std::mutex m;
  std::map<std::string, Failure> armed;
};
void arm(Failures& f, const std::string& what, unsigned nth) {
  size_t equals = what.find('=');
  Failure one{nth};
  if (equals != what.npos) one.code = atol(what.c_str() + equals + 1);
  f.armed[what.substr(0, equals)] = one;
}
// MSLEMU_FAIL="buffer:3,device:0" arms failures from outside.
Failures& failures() {
  static Failures* f = [] {
    auto* made = new Failures;
    std::string list = environment("MSLEMU_FAIL", "");
    for (size_t at = 0; at < list.size();) {
      size_t end = std::min(list.find(',', at), list.size());
      std::string one = list.substr(at, end - at);
      size_t colon = one.find(':');
      arm(*made, one.substr(0, colon), colon == one.npos ? 1 : atoi(one.c_str() + colon + 1));
      at = end + 1;
    }
    return made;
  }();
  return *f;
}

unsigned number(const char* name, unsigned otherwise) {
  std::string v = environment(name, "");
  if (v.empty()) return otherwise;
  size_t digits = v.find_first_of("0123456789");  // "apple5" is 5
  return digits == v.npos ? otherwise : atoi(v.c_str() + digits);
}

constexpr const char* kSince15[] = {"newResidencySetWithDescriptor:error:", "addResidencySet:",
                                    "setMathMode:", "setMathFloatingPointFunctions:"};

}  // namespace

std::string environment(const char* name, const char* otherwise) {
  const char* v = getenv(name);
  return v && *v ? v : otherwise;
}

Settings& settings() {
  static Settings* s = [] {
    auto* made = new Settings;
    made->check = number("MSLEMU_CHECK", 0) == 1;
    made->flush = number("MSLEMU_FLUSH", 0) == 1;
    made->seed = number("MSLEMU_SEED", 1);
    made->family = number("MSLEMU_FAMILY", 8);
    made->os = number("MSLEMU_OS", 15);
    made->threads = number("MSLEMU_THREADS", std::max(1u, std::thread::hardware_concurrency()));
    made->grace_ms = number("MSLEMU_GRACE_MS", 3);
    made->patience_ms = number("MSLEMU_PATIENCE_MS", 10000);
    return made;
  }();
  return *s;
}

Counters& counters() {
  static auto* c = new Counters;
  return *c;
}

namespace {
struct Ran {
  std::mutex m;
  std::set<std::string> names[2];
};
Ran& ran() {
  static auto* r = new Ran;
  return *r;
}
}  // namespace

void note_run(const std::string& kernel, bool check) {
  std::lock_guard<std::mutex> lock(ran().m);
  ran().names[check].insert(kernel);
}

void report(const char* kind, const char* format, ...) {
  char line[2000];
  int at = snprintf(line, sizeof line, "[metal-emu] %s: ", kind);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + at, sizeof line - at, format, arguments);
  va_end(arguments);
  {
    Faults& f = faults();
    std::lock_guard<std::mutex> lock(f.m);
    ++f.count;
    if (f.text.size() < (1 << 20)) f.text += std::string(line) + "\n";
  }
  fprintf(stderr, "%s\n", line);
  if (getenv("MSLEMU_ABORT")) abort();
}

unsigned fault_epoch() {
  std::lock_guard<std::mutex> lock(faults().m);
  return faults().epoch;
}

unsigned since(const char* selector) {
  for (const char* one : kSince15)
    if (!strcmp(one, selector)) return 15;
  return 0;
}

bool must_fail(const char* what, long* code) {
  Failures& f = failures();
  std::lock_guard<std::mutex> lock(f.m);
  auto it = f.armed.find(what);
  if (it == f.armed.end()) return false;
  Failure& one = it->second;
  if (one.nth && ++one.seen < one.nth) return false;
  if (code) *code = one.code;
  if (one.nth) f.armed.erase(it);
  return true;
}

}  // namespace emu

extern "C" {
void metalemu_set_check(int on) {
  emu::settings().check = on != 0;
  emu::forget_order();
}
void metalemu_set_flush(int on) {
  emu::settings().flush = on != 0;
}
void metalemu_set_seed(unsigned seed) {
  emu::settings().seed = seed;
  emu::forget_order();
}
void metalemu_set_family(unsigned family) {
  emu::settings().family = family;
}
void metalemu_set_os(unsigned major) {
  emu::settings().os = major;
}
void metalemu_set_grace(unsigned milliseconds) {
  emu::settings().grace_ms = milliseconds;
}
void metalemu_fail(const char* what, unsigned nth) {
  emu::Failures& f = emu::failures();
  std::lock_guard<std::mutex> lock(f.m);
  if (what) emu::arm(f, what, nth);
  else f.armed.clear();
}
long metalemu_faults(void) {
  std::lock_guard<std::mutex> lock(emu::faults().m);
  return emu::faults().count;
}
const char* metalemu_fault_text(void) {
  static thread_local std::string copy;
  std::lock_guard<std::mutex> lock(emu::faults().m);
  copy = emu::faults().text;
  return copy.c_str();
}
void metalemu_clear_faults(void) {
  std::lock_guard<std::mutex> lock(emu::faults().m);
  emu::faults().count = 0;
  emu::faults().text.clear();
  ++emu::faults().epoch;
}
long metalemu_archive_hits(void) {
  return emu::counters().archive_hits;
}
long metalemu_archive_writes(void) {
  return emu::counters().archive_writes;
}
long metalemu_commits(void) {
  return emu::counters().commits;
}
long metalemu_residency_commits(void) {
  return emu::counters().residency_commits;
}
long metalemu_residency_requests(void) {
  return emu::counters().residency_requests;
}
long metalemu_compiles(void) {
  return emu::counters().compiles;
}
long metalemu_dispatches(void) {
  return emu::counters().dispatches;
}
const char* metalemu_ran_text(int check) {
  static thread_local std::string copy;
  std::lock_guard<std::mutex> lock(emu::ran().m);
  copy.clear();
  for (const std::string& name : emu::ran().names[check != 0]) copy += name + "\n";
  return copy.c_str();
}
void metalemu_clear_ran(void) {
  std::lock_guard<std::mutex> lock(emu::ran().m);
  for (auto& names : emu::ran().names) names.clear();
}
}
