#include "plan/core.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace accel::planner {

static int resource_count(const std::vector<Touches>& steps) {
  int n = 0;
  for (const Touches& touches : steps)
    for (const Touch& t : touches) n = std::max(n, t.resource + 1);
  return n;
}

// Resources that nobody writes make no edge; skipping them keeps the walk short when every step
// reads the weights.
static std::vector<bool> written_resources(const std::vector<Touches>& steps) {
  std::vector<bool> written(size_t(resource_count(steps)), false);
  for (const Touches& touches : steps)
    for (const Touch& t : touches)
      if (t.write) written[size_t(t.resource)] = true;
  return written;
}

namespace {
struct Span {
  Touch touch;
  int step;
};
}  // namespace

std::vector<Edge> find_edges(const std::vector<Touches>& steps) {
  const std::vector<bool> written = written_resources(steps);
  std::vector<std::vector<Span>> spans(written.size());
  std::vector<Edge> edges;
  for (int s = 0; s < int(steps.size()); ++s) {
    // All touches of a step are classified before any is committed.
    for (const Touch& t : steps[size_t(s)])
      if (written[size_t(t.resource)])
        for (const Span& earlier : spans[size_t(t.resource)])
          if (conflict(earlier.touch, t)) edges.push_back({earlier.step, s});
    for (const Touch& t : steps[size_t(s)]) {
      if (!written[size_t(t.resource)]) continue;
      std::vector<Span>& list = spans[size_t(t.resource)];
      // Later steps are ordered after this write, and through it after what it covers fully.
      if (t.write)
        std::erase_if(list, [&](const Span& o) {
          return o.step != s && t.begin <= o.touch.begin && o.touch.end <= t.end;
        });
      list.push_back({t, s});
    }
  }
  std::sort(edges.begin(), edges.end());
  edges.erase(std::unique(edges.begin(), edges.end()), edges.end());
  return edges;
}

namespace {
// Disjoint ascending ranges.
class Covered {
 public:
  bool contains(int64_t begin, int64_t end) const {
    for (const auto& [b, e] : ranges_)
      if (b <= begin && end <= e) return true;
    return begin >= end;
  }
  void add(int64_t begin, int64_t end) {
    std::vector<std::pair<int64_t, int64_t>> merged;
    for (const auto& [b, e] : ranges_) {
      if (e < begin || end < b) merged.push_back({b, e});
      else begin = std::min(begin, b), end = std::max(end, e);
    }
    merged.push_back({begin, end});
    ranges_ = std::move(merged);
  }

 private:
  std::vector<std::pair<int64_t, int64_t>> ranges_;
};
}  // namespace

int find_unwritten_read(const std::vector<Touches>& steps, const std::vector<bool>& transient) {
  std::vector<Covered> covered(transient.size());
  const auto of = [&](const Touch& t) -> Covered* {
    const size_t r = size_t(t.resource);
    return r < transient.size() && transient[r] ? &covered[r] : nullptr;
  };
  for (int s = 0; s < int(steps.size()); ++s) {
    for (const Touch& t : steps[size_t(s)])
      if (t.read && of(t) && !of(t)->contains(t.begin, t.end)) return s;
    for (const Touch& t : steps[size_t(s)])
      if (t.write && of(t)) of(t)->add(t.begin, t.end);
  }
  return -1;
}

Reach::Reach(int steps, const std::vector<Edge>& edges) : steps_(steps), before_(steps, steps) {
  const size_t n = size_t(steps);
  std::vector<std::vector<int>> sources(n);
  for (const Edge& e : edges) sources[size_t(e.to)].push_back(e.from);
  for (int s = 0; s < steps; ++s)
    for (int from : sources[size_t(s)]) {
      before_.add_row(s, from);
      before_.set(s, from);
    }
}

// Calls visit(i) for each bit below `end` that is clear in all the words.
template <class Visit>
static void for_each_clear(const std::vector<uint64_t>& words, int end, const Visit& visit) {
  for (size_t w = 0; int(w) * 64 < end; ++w) {
    uint64_t clear = ~words[w];
    if (const int left = end - int(w) * 64; left < 64) clear &= (uint64_t(1) << left) - 1;
    for (; clear; clear &= clear - 1) visit(int(w) * 64 + std::countr_zero(clear));
  }
}

// Whole rows of bits at a time: a transient comes wholly before another unless one of its users
// is a step that does not precede all users of the other. Steps ascend along edges, so those at or
// behind the other's first user are such steps, and of those ahead of it there are few.
BitMatrix find_sharing(const std::vector<Transient>& transients, const Reach& reach) {
  const int n = int(transients.size()), steps = reach.steps();
  BitMatrix used(steps, n), used_from(steps, n);  // transients by step; by step or a later one
  for (int i = 0; i < n; ++i)
    for (const int user : transients[size_t(i)].users) used.set(user, i), used_from.set(user, i);
  for (int s = steps - 2; s >= 0; --s) used_from.add_row(s, s + 1);
  BitMatrix sharing(n, n);
  std::vector<uint64_t> before, late;
  for (int j = 0; j < n; ++j) {
    const std::vector<int>& users = transients[size_t(j)].users;
    before.assign(reach.before(users[0]), reach.before(users[0]) + (size_t(steps) + 63) / 64);
    for (const int user : users)
      for (size_t w = 0; w < before.size(); ++w) before[w] &= reach.before(user)[w];
    late.assign(used_from.at(users[0]), used_from.at(users[0]) + used_from.words());
    for_each_clear(before, users[0], [&](int s) {
      for (size_t w = 0; w < late.size(); ++w) late[w] |= used.at(s)[w];
    });
    for_each_clear(late, n, [&](int i) { sharing.set(i, j), sharing.set(j, i); });
  }
  return sharing;
}

Packing pack(const std::vector<Transient>& transients, const BitMatrix& sharing,
             int64_t alignment) {
  std::vector<int> order(transients.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int(i);
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    const Transient &x = transients[size_t(a)], &y = transients[size_t(b)];
    if (x.bytes != y.bytes) return x.bytes > y.bytes;
    if (x.users.front() != y.users.front()) return x.users.front() < y.users.front();
    return a < b;
  });
  Packing packing;
  packing.offsets.resize(transients.size());
  std::vector<int> placed;  // by offset
  for (int i : order) {
    const int64_t size = align_up(transients[size_t(i)].bytes, alignment);
    int64_t offset = 0;
    for (int p : placed) {
      if (sharing.test(i, p)) continue;
      const int64_t begin = packing.offsets[size_t(p)];
      if (offset + size <= begin) break;
      offset = std::max(offset, begin + align_up(transients[size_t(p)].bytes, alignment));
    }
    packing.offsets[size_t(i)] = offset;
    packing.bytes = std::max(packing.bytes, offset + size);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](int a, int b) {
                                     return packing.offsets[size_t(a)] < packing.offsets[size_t(b)];
                                   }),
                  i);
  }
  return packing;
}

Packing pack_apart(const std::vector<Transient>& transients, int64_t alignment) {
  Packing packing;
  for (const Transient& t : transients) {
    packing.offsets.push_back(packing.bytes);
    packing.bytes += align_up(t.bytes, alignment);
  }
  return packing;
}

int64_t interval_peak(const std::vector<Transient>& transients, int64_t alignment) {
  int last = -1;
  for (const Transient& t : transients) last = std::max(last, t.users.back());
  std::vector<int64_t> change(size_t(last + 2), 0);
  for (const Transient& t : transients) {
    change[size_t(t.users.front())] += align_up(t.bytes, alignment);
    change[size_t(t.users.back() + 1)] -= align_up(t.bytes, alignment);
  }
  int64_t live = 0, peak = 0;
  for (int64_t c : change) peak = std::max(peak, live += c);
  return peak;
}

std::vector<bool> place_barriers(const std::vector<Touches>& steps,
                                 const std::vector<int>& groups) {
  const std::vector<bool> written = written_resources(steps);
  std::vector<Touches> open(written.size());  // by resource, since the last barrier
  std::vector<int> dirty;                     // resources with open touches
  std::vector<bool> barriers(steps.size(), false);
  for (size_t s = 0; s < steps.size(); ++s) {
    bool barrier = s == 0;
    for (size_t g = s; g < steps.size() && (g == s || (!groups.empty() && groups[g] == int(s)));
         ++g)
      for (const Touch& t : steps[g])
        for (const Touch& o : open[size_t(t.resource)]) barrier |= conflict(t, o);
    if (barrier) {
      for (int r : dirty) open[size_t(r)].clear();
      dirty.clear();
    }
    for (const Touch& t : steps[s]) {
      if (!written[size_t(t.resource)]) continue;
      if (open[size_t(t.resource)].empty()) dirty.push_back(t.resource);
      open[size_t(t.resource)].push_back(t);
    }
    barriers[s] = barrier;
  }
  return barriers;
}

}  // namespace accel::planner
