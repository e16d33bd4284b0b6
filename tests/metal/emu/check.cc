#include "check.h"

#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

#include "settings.h"

namespace emu {
namespace {

struct Mark {  // who touched a byte, and when
  unsigned id = 0, group = 0, epoch = 0, simd_epoch = 0;
  uint16_t thread = 0;
  bool atomic = false;
};
struct Cell {
  Mark write, read;
  uint16_t earlier_reader = 0;  // a second one of the same epoch
};
struct Page {
  Cell cell[4096];
};

// Who touches memory now.
struct Actor {
  const Node* node;
  const Buffer* buffer;  // null: threadgroup memory
  Mark mark;
};

struct Shadow {
  std::mutex m;  // of what is to be forgotten: the host may give memory back at any time
  std::vector<std::pair<uintptr_t, size_t>> forgotten;
  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages;
  uintptr_t last_key = 0;
  Page* last = nullptr;
  std::set<std::pair<void*, int>> said;  // one report for each place and kind
  unsigned epoch = 0;
  std::vector<uint8_t> written = std::vector<uint8_t>(kThreadgroupBytes);
  unsigned written_group = ~0u;
  const Node* written_node = nullptr;
  // The last answer about the order of two commands.
  unsigned asked = 0, asked_by = 0;
  const Buffer* asked_for = nullptr;
  bool answer = false;

  Cell& cell(uintptr_t a) {
    uintptr_t key = a >> 12;
    if (key != last_key || !last) {
      auto& p = pages[key];
      if (!p) p.reset(new Page);
      last_key = key;
      last = p.get();
    }
    return last->cell[a & 4095];
  }
  bool follows(const Actor& me, unsigned other) {
    if (asked != other || asked_by != me.mark.id || asked_for != me.buffer) {
      answer = me.node->follows(other, me.buffer);
      asked = other;
      asked_by = me.mark.id;
      asked_for = me.buffer;
    }
    return answer;
  }
};
Shadow& shadow() {
  static auto* s = new Shadow;
  return *s;
}

std::string line_of(void* pc) {
  Dl_info info;
  if (!dladdr(pc, &info)) return "?";
  char command[600];
  int status;
  snprintf(command, sizeof command, "addr2line -s -e %s %#lx", worker->module->path.c_str(),
           reinterpret_cast<uintptr_t>(pc) - reinterpret_cast<uintptr_t>(info.dli_fbase) - 1);
  std::string s = run_command(command, &status);
  while (!s.empty() && s.back() == '\n') s.pop_back();
  return s;
}

void fault(void* pc, int kind, const char* name, const std::string& what) {
  Shadow& s = shadow();
  if (s.epoch != fault_epoch()) {
    s.said.clear();
    s.epoch = fault_epoch();
  }
  if (!s.said.insert({pc, kind}).second) return;
  if (!worker) return report(name, "a copy: %s", what.c_str());
  report(name, "kernel '%s', group %u, thread %u, %s: %s", worker->entry->name, worker->group,
         worker->current, line_of(pc).c_str(), what.c_str());
}

// Why an access by `me` and the one marked `m` have no order, or null.
const char* clash(Shadow& s, const Actor& me, const Mark& m, unsigned thread) {
  if (!m.id) return nullptr;
  if (m.id != me.mark.id) {
    if (!me.buffer || s.follows(me, m.id)) return nullptr;
    return "another command, with no barrier, fence or event between them";
  }
  if (m.group != me.mark.group) return me.buffer ? "another threadgroup of this dispatch" : nullptr;
  if (thread == me.mark.thread || m.epoch != me.mark.epoch) return nullptr;
  if (thread / 32 == me.mark.thread / 32 && m.simd_epoch != me.mark.simd_epoch) return nullptr;
  return "another thread of the group with no barrier between them";
}

void compare(const Actor& me, uintptr_t a, size_t n, bool write, void* pc) {
  Shadow& s = shadow();
  const std::string memory = me.buffer ? " of device memory" : " of threadgroup memory";
  for (size_t i = 0; i < n; ++i) {
    Cell& c = s.cell(a + i);
    const char* why = clash(s, me, c.write, c.write.thread);
    if (why && !(me.mark.atomic && c.write.atomic))
      return fault(pc, 5, "race", (write ? "write" : "read") + memory + " written by " + why);
    if (!write) {
      bool same =
          c.read.id == me.mark.id && c.read.group == me.mark.group && c.read.epoch == me.mark.epoch;
      c.earlier_reader = same ? c.read.thread : me.mark.thread;
      c.read = me.mark;
      continue;
    }
    for (unsigned reader : {c.read.thread, c.earlier_reader}) {
      why = clash(s, me, c.read, reader);
      if (why && !(me.mark.atomic && c.read.atomic))
        return fault(pc, 6, "race", "write" + memory + " read by " + why);
    }
    c.write = me.mark;
  }
}

// Whether the access lies in threadgroup memory that was handed out, and was written before a read.
bool threadgroup_access(Worker& k, const char* c, size_t n, bool write, void* pc) {
  Shadow& s = shadow();
  if (c + n > k.memory + k.memory_used) {
    fault(pc, 1, "out-of-bounds", "threadgroup memory past its end");
    return false;
  }
  if (s.written_group != k.group || s.written_node != k.node) {
    std::fill(s.written.begin(), s.written.end(), 0);
    s.written_group = k.group;
    s.written_node = k.node;
  }
  for (size_t i = 0; i < n; ++i) {
    uint8_t& w = s.written[c - k.memory + i];
    if (write) w = 1;
    else if (!w)
      return fault(pc, 2, "uninitialised", "read of threadgroup memory that nothing wrote"), true;
  }
  return true;
}

// The bound argument that holds the access, if any.
const Bound* bound_at(Worker& k, const char* c, size_t n, bool write, void* pc) {
  const Bound* found = nullptr;
  bool read_only = false;
  for (const Argument& a : k.dispatch->pipeline->kernel->arguments) {
    if (a.kind != "buffer") continue;
    const Bound& b = k.dispatch->bound[a.index];
    if (!b.set() || c < b.low() || c + n > b.high()) continue;
    found = &b;
    read_only = write && !a.write;
    if (!read_only) break;
  }
  if (!found)
    fault(pc, 3, "out-of-bounds",
          std::string(write ? "write" : "read") + " outside every bound buffer");
  if (read_only) fault(pc, 4, "read-only", "write to a buffer bound to a const argument");
  return found;
}

void access(void* p, size_t n, bool write, bool atomic, void* pc) {
  Worker* k = worker;
  if (!k) return;
  auto a = reinterpret_cast<uintptr_t>(p);
  auto* c = static_cast<char*>(p);
  if (a >= k->module->low && a < k->module->high) return;  // its own constants
  if (!write && Worker::is_absent(c)) return;
  Actor me{k->node, nullptr, {}};
  me.mark = {k->node->id,
             k->group,
             k->epoch_threadgroup,
             k->lane[k->current].simd_epoch,
             static_cast<uint16_t>(k->current),
             atomic};
  if (k->in_threadgroup_memory(c)) {
    if (!threadgroup_access(*k, c, n, write, pc)) return;
  } else if (k->owns(c) ||
             (c >= reinterpret_cast<char*>(k) && c < reinterpret_cast<char*>(k + 1))) {
    return;  // stacks and exchanges
  } else {
    const Bound* b = bound_at(*k, c, n, write, pc);
    if (!b || !b->buffer) return;
    me.buffer = b->buffer;
    me.mark.epoch = k->epoch_device;
  }
  compare(me, a, n, write, pc);
}

void aligned(void* p, size_t n, void* pc) {
  if (reinterpret_cast<uintptr_t>(p) % n && worker)
    fault(pc, 7, "misaligned",
          "a " + std::to_string(n) + "-byte access at an address that is not a multiple of it");
}

}  // namespace

void check_copy(const Node& n, const Buffer* b, size_t at, size_t bytes, bool write) {
  if (!settings().check) return;
  check_begin();
  Actor me{&n, b, {}};
  me.mark.id = n.id;
  // One place for each buffer: two copies between the same ones are said once.
  compare(me, reinterpret_cast<uintptr_t>(b->data + at), bytes, write, const_cast<Buffer*>(b));
}

void check_forget(const char* p, size_t bytes) {
  Shadow& s = shadow();
  std::lock_guard<std::mutex> lock(s.m);
  s.forgotten.emplace_back(reinterpret_cast<uintptr_t>(p), bytes);
}

void check_begin() {
  Shadow& s = shadow();
  std::lock_guard<std::mutex> lock(s.m);
  if (!s.pages.empty())
    for (auto [start, bytes] : s.forgotten)
      for (uintptr_t key = start >> 12; key <= (start + bytes) >> 12; ++key) s.pages.erase(key);
  s.forgotten.clear();
  s.last = nullptr;
}

// A module for check mode is built with clang's thread-sanitizer instrumentation; these are its
// callbacks, and there is no sanitizer runtime.
#define CALLER __builtin_return_address(0)
extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define ACCESSES(n)                              \
  void __tsan_read##n(void* p) {                 \
    aligned(p, n, CALLER);                       \
    access(p, n, false, false, CALLER);          \
  }                                              \
  void __tsan_write##n(void* p) {                \
    aligned(p, n, CALLER);                       \
    access(p, n, true, false, CALLER);           \
  }                                              \
  void __tsan_unaligned_read##n(void* p) {       \
    access(p, n, false, false, CALLER);          \
  }                                              \
  void __tsan_unaligned_write##n(void* p) {      \
    access(p, n, true, false, CALLER);           \
  }                                              \
  void __tsan_read_write##n(void* p) {           \
    aligned(p, n, CALLER);                       \
    access(p, n, false, false, CALLER);          \
    access(p, n, true, false, CALLER);           \
  }                                              \
  void __tsan_unaligned_read_write##n(void* p) { \
    access(p, n, false, false, CALLER);          \
    access(p, n, true, false, CALLER);           \
  }
ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __tsan_read_range(void* p, size_t n) {
  access(p, n, false, false, CALLER);
}
void __tsan_write_range(void* p, size_t n) {
  access(p, n, true, false, CALLER);
}
void* __tsan_memcpy(void* d, const void* s, size_t n) {
  access(const_cast<void*>(s), n, false, false, CALLER);
  access(d, n, true, false, CALLER);
  return memcpy(d, s, n);
}
void* __tsan_memmove(void* d, const void* s, size_t n) {
  access(const_cast<void*>(s), n, false, false, CALLER);
  access(d, n, true, false, CALLER);
  return memmove(d, s, n);
}
void* __tsan_memset(void* d, int c, size_t n) {
  access(d, n, true, false, CALLER);
  return memset(d, c, n);
}

#define FETCH(bits, T, name)                             \
  T __tsan_atomic##bits##_fetch_##name(T* p, T v, int) { \
    access(p, sizeof(T), true, true, CALLER);            \
    return __atomic_fetch_##name(p, v, 0);               \
  }
#define ATOMICS(bits, T)                                                   \
  T __tsan_atomic##bits##_load(const T* p, int) {                          \
    access(const_cast<T*>(p), sizeof(T), false, true, CALLER);             \
    return __atomic_load_n(p, 0);                                          \
  }                                                                        \
  void __tsan_atomic##bits##_store(T* p, T v, int) {                       \
    access(p, sizeof(T), true, true, CALLER);                              \
    __atomic_store_n(p, v, 0);                                             \
  }                                                                        \
  T __tsan_atomic##bits##_exchange(T* p, T v, int) {                       \
    access(p, sizeof(T), true, true, CALLER);                              \
    return __atomic_exchange_n(p, v, 0);                                   \
  }                                                                        \
  T __tsan_atomic##bits##_compare_exchange_val(T* p, T e, T v, int, int) { \
    access(p, sizeof(T), true, true, CALLER);                              \
    __atomic_compare_exchange_n(p, &e, v, false, 0, 0);                    \
    return e;                                                              \
  }                                                                        \
  FETCH(bits, T, add)                                                      \
  FETCH(bits, T, sub)                                                      \
  FETCH(bits, T, and)                                                      \
  FETCH(bits, T, or)                                                       \
  FETCH(bits, T, xor)
ATOMICS(8, unsigned char)
ATOMICS(32, int)
ATOMICS(64, long)
}

}  // namespace emu

// gcc 12's support library has no conversion of float to bfloat16, which clang calls: to nearest
// even.
extern "C" __bf16 __truncsfbf2(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  uint16_t h =
      (u & 0x7fffffff) > 0x7f800000 ? (u >> 16) | 0x40 : (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  __bf16 r;
  memcpy(&r, &h, 2);
  return r;
}
