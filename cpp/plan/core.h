// The arithmetic of the planner on plain numbers: edges from byte ranges, reachability, sharing,
// packing, barriers. Knows no operator and no graph. A step is an index; steps are in record order.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace accel::planner {

// Bytes [begin, end) of one resource that a step touches.
struct Touch {
  int resource = 0;
  int64_t begin = 0, end = 0;
  bool read = false, write = false;
};
using Touches = std::vector<Touch>;

inline bool conflict(const Touch& a, const Touch& b) {
  return a.resource == b.resource && (a.write || b.write) && a.begin < b.end && b.begin < a.end;
}
inline int64_t align_up(int64_t v, int64_t alignment) {
  return (v + alignment - 1) / alignment * alignment;
}

struct Edge {
  int from = 0, to = 0;
  auto operator<=>(const Edge&) const = default;
};

// Read after write, write after read, write after write, in record order (CONTRACT 4.1).
// Sorted by (from, to), each once.
std::vector<Edge> find_edges(const std::vector<Touches>& steps);

// The first step that reads bytes of a transient which no earlier step wrote, or -1.
// transient[r] tells whether resource r is one.
int find_unwritten_read(const std::vector<Touches>& steps, const std::vector<bool>& transient);

// One bit a pair.
class BitMatrix {
 public:
  BitMatrix(int rows, int columns)
      : words_((std::size_t(columns) + 63) / 64), bits_(words_ * std::size_t(rows)) {}
  bool test(int row, int column) const {
    return at(row)[std::size_t(column) / 64] >> (column % 64) & 1;
  }
  void set(int row, int column) {
    at(row)[std::size_t(column) / 64] |= uint64_t(1) << (column % 64);
  }
  void clear(int row, int column) {
    at(row)[std::size_t(column) / 64] &= ~(uint64_t(1) << (column % 64));
  }
  void add_row(int row, int other) {
    for (std::size_t i = 0; i < words_; ++i) at(row)[i] |= at(other)[i];
  }
  // A row as words, the lowest column in the lowest bit of the first.
  std::size_t words() const { return words_; }
  uint64_t* at(int row) { return bits_.data() + words_ * std::size_t(row); }
  const uint64_t* at(int row) const { return bits_.data() + words_ * std::size_t(row); }

 private:
  std::size_t words_;
  std::vector<uint64_t> bits_;
};

// Which steps come before a step in the DAG: the closure of the edges.
class Reach {
 public:
  Reach(int steps, const std::vector<Edge>& edges);
  bool precedes(int a, int b) const { return before_.test(b, a); }
  int steps() const { return steps_; }
  // A bit for each step: whether it precedes `step`.
  const uint64_t* before(int step) const { return before_.at(step); }

 private:
  int steps_;
  BitMatrix before_;
};

struct Transient {
  int64_t bytes = 0;
  std::vector<int> users;  // steps that touch it, its writer first, ascending
};

// Bit (i, j): every user of i precedes every user of j, or the other way round (CONTRACT 4.3).
// No transient shares with itself.
BitMatrix find_sharing(const std::vector<Transient>& transients, const Reach& reach);

struct Packing {
  std::vector<int64_t> offsets;
  int64_t bytes = 0;
};
// Size descending, ties by first writer; each takes the lowest aligned offset that misses every
// placed one it may not share with.
Packing pack(const std::vector<Transient>& transients, const BitMatrix& sharing, int64_t alignment);
// One after another in the given order, nothing shared.
Packing pack_apart(const std::vector<Transient>& transients, int64_t alignment);

// Aligned sizes of what is live at the fullest step.
int64_t interval_peak(const std::vector<Transient>& transients, int64_t alignment);

// A barrier before a step that conflicts with a step since the last barrier, and one at the head,
// which orders the submission after the one before it. Steps of a group (groups[s] is its first
// step, or -1) start together: what one of them waits for, before the group, all do.
std::vector<bool> place_barriers(const std::vector<Touches>& steps,
                                 const std::vector<int>& groups = {});

}  // namespace accel::planner
