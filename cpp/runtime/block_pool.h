// Hands out the blocks of a paged cache (CONTRACT 22). Knows no device and no fence: on one queue
// order protects a block that is used again; otherwise the caller waits before it frees one.
// Safe to share between threads. A call that is refused changes nothing.
#pragma once
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace accel {

class BlockPool {
 public:
  using Pages = std::vector<int64_t>;
  // Throws attr_error unless both are positive and every block's number is a u32, out_of_memory
  // where the list of free blocks finds no room.
  BlockPool(int64_t blocks, int64_t positions);

  // Pages that hold n positions: the given ones, and what they lack from the end of the free list.
  // Throws attr_error for a negative n and for pages that are not in use, capacity exhausted when
  // too few blocks are free.
  Pages grow(const Pages& pages, int64_t n);
  // Gives pages back, in this order. Throws attr_error that names every page which is not in use or
  // given twice, and frees none then.
  void free(const Pages& pages);

  int64_t block_size() const { return positions_; }
  int64_t blocks() const { return blocks_; }
  int64_t available() const;
  // Positions that the pages hold. Throws attr_error where that exceeds 63 bits.
  int64_t positions(const Pages& pages) const;

 private:
  // With the lock: what is wrong with pages that must be in use, "" when nothing is.
  std::string bad_pages(const Pages& pages);

  const int64_t blocks_, positions_;
  mutable std::mutex mutex_;
  Pages free_;                   // taken from the end
  std::vector<uint8_t> in_use_;  // by block
  std::vector<uint8_t> seen_;    // by block: met in this call; all 0 between calls
};

}  // namespace accel
