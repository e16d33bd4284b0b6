#include "exec/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>

#include "exec/device.h"

namespace accel {

static constexpr int64_t kPages = int64_t(1) << 20;  // from here on the block is mapped
static constexpr int64_t kHugePage = int64_t(2) << 20;
static constexpr int64_t kAdvise = int64_t(4)
                                   << 20;  // from here on huge pages waste at most a half

static constexpr int64_t kSlab = int64_t(16) << 20;
// A sanitizer sees what is read past a block only where the block is its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
static constexpr bool kSlabs = false;
#else
static constexpr bool kSlabs = true;
#endif

static std::atomic<int64_t> g_fail_in{0};

void fail_allocation(int64_t nth) {
  g_fail_in.store(nth, std::memory_order_relaxed);
}

bool allocation_must_fail() {
  if (g_fail_in.load(std::memory_order_relaxed) <= 0) return false;
  return g_fail_in.fetch_sub(1, std::memory_order_relaxed) == 1;
}

int64_t memory_total() {
  const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
  return pages > 0 && size > 0 ? int64_t(pages) * size : 0;
}

int64_t memory_available() {
  int64_t kib = 0;
  if (std::FILE* f = std::fopen("/proc/meminfo", "r")) {
    char line[128];
    while (std::fgets(line, sizeof line, f)) {
      long long v = 0;
      if (std::sscanf(line, "MemAvailable: %lld", &v) == 1) kib = v;
    }
    std::fclose(f);
  }
  return kib * 1024;
}

// Maps `bytes` (a multiple of the page) at a multiple of `alignment`, by mapping more and giving
// the ends back.
static void* map_aligned(size_t bytes, size_t alignment) {
  const size_t slack = alignment;
  void* all =
      mmap(nullptr, bytes + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (all == MAP_FAILED) return nullptr;
  const uintptr_t from = reinterpret_cast<uintptr_t>(all);
  const uintptr_t at = (from + alignment - 1) / alignment * alignment;
  if (at > from) munmap(all, at - from);
  const size_t behind = from + slack - at;
  if (behind) munmap(reinterpret_cast<void*>(at + bytes), behind);
  return reinterpret_cast<void*>(at);
}

static std::shared_ptr<void> map_pages(int64_t bytes) {
  const size_t page = size_t(sysconf(_SC_PAGESIZE));
  const size_t size = (size_t(bytes) + page - 1) / page * page;
  void* p = map_aligned(size, bytes >= kAdvise ? size_t(kHugePage) : page);
  if (!p) return nullptr;
#ifdef MADV_HUGEPAGE
  if (bytes >= kAdvise)
    madvise(p, size, MADV_HUGEPAGE);  // advice: a refusal changes nothing but speed
#endif
  return {p, [size](void* q) { munmap(q, size); }};
}

static std::shared_ptr<void> take_lines(int64_t bytes) {
  const size_t size = size_t(bytes + kAlignment - 1) / kAlignment * kAlignment;
  void* p = std::aligned_alloc(kAlignment, size ? size : size_t(kAlignment));
  if (!p) return nullptr;
  std::memset(p, 0, size ? size : size_t(kAlignment));
  return {p, [](void* q) { std::free(q); }};
}

// Blocks one behind the other. Nothing in a slab is given out twice, so all of it is zero; it goes
// back as a whole with its last block.
static std::shared_ptr<void> take_slab(int64_t bytes) {
  struct Slab {
    std::shared_ptr<void> memory;
    int64_t used = 0;
  };
  static std::mutex mutex;
  static std::weak_ptr<Slab> current;  // only its blocks keep it
  const std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<Slab> slab = current.lock();
  if (!slab || bytes > kSlab - slab->used) {
    std::shared_ptr<void> memory = map_pages(kSlab);
    if (!memory) return nullptr;
    slab = std::make_shared<Slab>();
    slab->memory = std::move(memory);
    current = slab;
  }
  void* at = static_cast<char*>(slab->memory.get()) + slab->used;
  slab->used += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return {std::move(slab), at};
}

std::shared_ptr<void> allocate_plane(int64_t bytes, const std::string& what) {
  const int64_t limit = memory_total() > 0 ? memory_total() : INT64_MAX;
  if (!kSlabs || bytes >= kAdvise) return allocate_zeroed(bytes, limit, what);
  if (auto p = allocation_must_fail() ? nullptr : take_slab(bytes)) return p;
  throw out_of_memory(bytes, limit, what);
}

void check_bytes(int64_t bytes, int64_t limit, const std::string& what) {
  if (bytes > limit)
    throw capacity_error("too_large",
                         what + " is " + std::to_string(bytes) + " bytes and must be at most " +
                             std::to_string(limit) + " (max_bytes of the device)",
                         bytes, memory_available(), limit);
}

Error out_of_memory(int64_t bytes, int64_t limit, const std::string& what) {
  const int64_t available = memory_available();
  return capacity_error("out_of_memory",
                        what + " is " + std::to_string(bytes) +
                            " bytes, which the system refused; " + std::to_string(available) +
                            " bytes are available and the device allows " + std::to_string(limit),
                        bytes, available, limit);
}

std::shared_ptr<void> allocate_zeroed(int64_t bytes, int64_t limit, const std::string& what) {
  check_bytes(bytes, limit, what);
  std::shared_ptr<void> p;
  if (!allocation_must_fail()) p = bytes >= kPages ? map_pages(bytes) : take_lines(bytes);
  if (!p) throw out_of_memory(bytes, limit, what);
  return p;
}

}  // namespace accel
