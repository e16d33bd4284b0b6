#include "runtime/block_pool.h"

#include <new>

#include "base/error.h"

namespace accel {

static constexpr int64_t kMaxBlocks = 0xffffffff;  // page tables are u32, and 2^32-1 is padding

static int64_t checked(const char* name, int64_t value, int64_t most) {
  const std::string is = std::string("BlockPool: ") + name + " is " + std::to_string(value);
  if (value < 1) throw attr_error("BlockPool", name, is + " and must be positive");
  if (value > most)
    throw attr_error("BlockPool", name, is + " and must be at most " + std::to_string(most));
  return value;
}

BlockPool::BlockPool(int64_t blocks, int64_t positions)
    : blocks_(checked("blocks", blocks, kMaxBlocks)),
      positions_(checked("positions", positions, INT64_MAX)) {
  try {
    in_use_.resize(size_t(blocks));
    seen_.resize(size_t(blocks));
    free_.reserve(size_t(blocks));
  } catch (const std::bad_alloc&) {
    const int64_t bytes = blocks * int64_t(sizeof(int64_t) + 2);
    throw capacity_error("out_of_memory",
                         "BlockPool: blocks is " + std::to_string(blocks) + ", whose list takes " +
                             std::to_string(bytes) + " bytes, which the system refused",
                         bytes, 0, bytes);
  }
  for (int64_t b = blocks - 1; b >= 0; --b) free_.push_back(b);
}

std::string BlockPool::bad_pages(const Pages& pages) {
  std::string bad;
  size_t marked = 0;
  for (const int64_t page : pages) {
    const char* why = nullptr;
    if (page < 0 || page >= blocks_) why = " never existed";
    else if (!in_use_[size_t(page)]) why = " is free";
    else if (seen_[size_t(page)]) why = " is repeated";
    else seen_[size_t(page)] = 1;
    ++marked;
    if (why) bad += (bad.empty() ? "" : ", ") + std::to_string(page) + why;
  }
  for (size_t i = 0; i < marked; ++i)
    if (pages[i] >= 0 && pages[i] < blocks_) seen_[size_t(pages[i])] = 0;
  return bad;
}

static std::string must_be(int64_t blocks) {
  return " and must be pages in use, each once, of [0, " + std::to_string(blocks) + ")";
}

BlockPool::Pages BlockPool::grow(const Pages& pages, int64_t n) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (n < 0)
    throw attr_error("grow", "n", "grow: n is " + std::to_string(n) + " and must not be negative");
  if (const std::string bad = bad_pages(pages); !bad.empty())
    throw attr_error("grow", "pages", "grow: pages: " + bad + must_be(blocks_));
  const int64_t want = n / positions_ + (n % positions_ != 0), have = int64_t(pages.size());
  if (want <= have) return pages;
  const int64_t need = want - have, left = int64_t(free_.size());
  if (need > left)
    throw capacity_error("exhausted",
                         "grow: " + std::to_string(need) + " blocks are needed and " +
                             std::to_string(left) + " of " + std::to_string(blocks_) + " are free",
                         need, left, blocks_);
  Pages grown;
  grown.reserve(size_t(want));
  grown = pages;
  grown.insert(grown.end(), free_.end() - need, free_.end());
  for (int64_t i = have; i < want; ++i) in_use_[size_t(grown[size_t(i)])] = 1;
  free_.resize(size_t(left - need));
  return grown;
}

void BlockPool::free(const Pages& pages) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (const std::string bad = bad_pages(pages); !bad.empty())
    throw attr_error("free", "pages", "free: pages: " + bad + must_be(blocks_));
  for (const int64_t page : pages) {
    in_use_[size_t(page)] = 0;
    free_.push_back(page);  // within what was reserved: cannot fail
  }
}

int64_t BlockPool::available() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return int64_t(free_.size());
}

int64_t BlockPool::positions(const Pages& pages) const {
  const int64_t n = int64_t(pages.size());
  if (n && n > INT64_MAX / positions_)
    throw attr_error("positions", "pages",
                     "positions: pages has " + std::to_string(n) + " blocks of " +
                         std::to_string(positions_) + " and must hold at most 2^63-1 positions");
  return n * positions_;
}

}  // namespace accel
