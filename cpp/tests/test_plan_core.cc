// The planner's arithmetic on plain numbers: the golden example of CONTRACT 4.4 with every number,
// hazards one by one, and barriers and aliasing against brute force over random plans.
#include <algorithm>
#include <random>

#include "check.h"
#include "plan/core.h"

using namespace accel::planner;

static Touch reads(int resource, int64_t begin, int64_t end) {
  return {resource, begin, end, true, false};
}
static Touch writes(int resource, int64_t begin, int64_t end) {
  return {resource, begin, end, false, true};
}
static std::string text_of(const std::vector<Edge>& edges) {
  std::string s;
  for (const Edge& e : edges)
    s += (s.empty() ? "" : " ") + std::to_string(e.from) + "-" + std::to_string(e.to);
  return s;
}
static std::string text_of(const std::vector<bool>& barriers) {
  std::string s;
  for (size_t i = 0; i < barriers.size(); ++i)
    if (barriers[i]) s += (s.empty() ? "" : " ") + std::to_string(i);
  return s;
}

// ---------------------------------------------------------------- the golden example

namespace golden {
constexpr int64_t MiB = 1 << 20;
enum { t0, t1, t2, t3, t4, t5, params, kv, x, y };
constexpr int64_t size[] = {4, 4, 4, 4, 2, 4};  // MiB

Touch whole(int resource, bool write) {
  const int64_t bytes = resource <= t5 ? size[resource] * MiB : MiB;
  return write ? writes(resource, 0, bytes) : reads(resource, 0, bytes);
}
std::vector<Touches> steps() {
  const auto step = [](std::vector<int> in, std::vector<int> out) {
    Touches touches;
    for (int r : in) touches.push_back(whole(r, false));
    for (int r : out) touches.push_back(whole(r, true));
    return touches;
  };
  return {step({}, {params}),   step({x, params}, {t0}),  step({t0}, {t1}),
          step({t0}, {t2}),     step({t1, params}, {t3}), step({t3, t2, kv}, {t4}),
          step({t4, kv}, {t5}), step({t5, x}, {y})};
}
std::vector<Transient> transients() {
  std::vector<Transient> all;
  for (int t = t0; t <= t5; ++t) {
    Transient one;
    one.bytes = size[t] * MiB;
    const std::vector<Touches> every = steps();
    for (int s = 0; s < int(every.size()); ++s)
      for (const Touch& touch : every[size_t(s)])
        if (touch.resource == t) one.users.push_back(s);
    all.push_back(one);
  }
  return all;
}
// The same steps with the transients where the packing put them: resource 100 is the arena.
std::vector<Touches> in_memory(const Packing& packing) {
  std::vector<Touches> all = steps();
  for (Touches& touches : all)
    for (Touch& t : touches) {
      if (t.resource > t5) continue;
      t.begin += packing.offsets[size_t(t.resource)];
      t.end += packing.offsets[size_t(t.resource)];
      t.resource = 100;
    }
  return all;
}
}  // namespace golden

TEST(p26_01_golden_example_edges) {
  CHECK_EQ(text_of(find_edges(golden::steps())), "0-1 0-4 1-2 1-3 2-4 3-5 4-5 5-6 6-7");
  const Reach reach(8, find_edges(golden::steps()));
  CHECK(!reach.precedes(2, 3) && !reach.precedes(3, 2));
  CHECK(reach.precedes(0, 7) && !reach.precedes(7, 0));
  std::vector<bool> transient(6, true);
  CHECK_EQ(find_unwritten_read(golden::steps(), transient), -1);
}

TEST(p26_01_golden_example_memory) {
  const auto transients = golden::transients();
  const BitMatrix sharing = find_sharing(transients, Reach(8, find_edges(golden::steps())));
  std::string incompatible;
  for (int i = 0; i < 6; ++i)
    for (int j = i + 1; j < 6; ++j)
      if (!sharing.test(i, j))
        incompatible += (incompatible.empty() ? "" : " ") + std::to_string(i) + std::to_string(j);
  CHECK_EQ(incompatible, "01 02 03 12 13 23 24 34 45");
  const Packing packing = pack(transients, sharing, 256);
  std::string offsets;
  for (int64_t o : packing.offsets) {
    CHECK_EQ(o % golden::MiB, 0);
    offsets += (offsets.empty() ? "" : " ") + std::to_string(o / golden::MiB);
  }
  CHECK_EQ(offsets, "0 4 8 12 4 0");
  CHECK_EQ(packing.bytes, 16 * golden::MiB);
  CHECK_EQ(interval_peak(transients, 256), 12 * golden::MiB);
  CHECK_EQ(pack_apart(transients, 256).bytes, 22 * golden::MiB);
}

TEST(p26_01_golden_example_barriers) {
  const auto transients = golden::transients();
  const Reach reach(8, find_edges(golden::steps()));
  const Packing packing = pack(transients, find_sharing(transients, reach), 256);
  CHECK_EQ(text_of(place_barriers(golden::in_memory(packing))), "0 1 2 4 5 6 7");
  CHECK_EQ(text_of(place_barriers(golden::in_memory(pack_apart(transients, 256)))),
           "0 1 2 4 5 6 7");
}

// ---------------------------------------------------------------- hazards one by one

static std::string edges_of(const Touch& a, const Touch& b) {
  return text_of(find_edges({{a}, {b}}));
}
static std::string barriers_of(const Touch& a, const Touch& b) {
  return text_of(place_barriers({{a}, {b}}));
}

TEST(p26_02_each_hazard_makes_an_edge_and_a_barrier) {
  const Touch r = reads(0, 0, 8), w = writes(0, 4, 12);
  CHECK_EQ(edges_of(w, r), "0-1");  // read after write
  CHECK_EQ(edges_of(r, w), "0-1");  // write after read
  CHECK_EQ(edges_of(w, w), "0-1");  // write after write
  CHECK_EQ(edges_of(r, r), "");
  CHECK_EQ(barriers_of(w, r), "0 1");
  CHECK_EQ(barriers_of(r, w), "0 1");
  CHECK_EQ(barriers_of(w, w), "0 1");
  CHECK_EQ(barriers_of(r, r), "0");
}

TEST(p26_02_disjoint_halves_and_other_resources_make_none) {
  const Touch low = writes(0, 0, 8), high = writes(0, 8, 16), other = writes(1, 0, 16);
  CHECK_EQ(edges_of(low, high), "");
  CHECK_EQ(edges_of(low, other), "");
  CHECK_EQ(barriers_of(low, high), "0");
  CHECK_EQ(barriers_of(low, other), "0");
  CHECK_EQ(edges_of(low, reads(0, 7, 8)), "0-1");
}

TEST(a_write_drops_an_earlier_span_only_when_it_covers_it) {
  const Touches first{writes(0, 0, 8)}, part{writes(0, 0, 4)}, full{writes(0, 0, 8)};
  const Touches read{reads(0, 0, 8)};
  CHECK_EQ(text_of(find_edges({first, part, read})), "0-1 0-2 1-2");
  CHECK_EQ(text_of(find_edges({first, full, read})), "0-1 1-2");
}

TEST(touches_of_a_step_are_classified_before_any_is_committed) {
  // In place: the step's own read does not meet its own write.
  CHECK_EQ(text_of(find_edges({{writes(0, 0, 8)}, {reads(0, 0, 8), writes(0, 0, 8)}})), "0-1");
  CHECK_EQ(text_of(place_barriers({{reads(0, 0, 8), writes(0, 0, 8)}})), "0");
  CHECK_EQ(find_unwritten_read({{writes(0, 0, 8), reads(0, 0, 8)}}, {true}), 0);
}

TEST(reading_unwritten_transient_bytes_is_found) {
  const Touches half{writes(0, 0, 4)}, other_half{writes(0, 4, 8)}, read{reads(0, 2, 6)};
  CHECK_EQ(find_unwritten_read({half, read}, {true}), 1);
  CHECK_EQ(find_unwritten_read({half, other_half, read}, {true}), -1);
  CHECK_EQ(find_unwritten_read({other_half, half, read}, {true}), -1);
  CHECK_EQ(find_unwritten_read({half, read}, {false}), -1);
  CHECK_EQ(find_unwritten_read({{{0, 0, 4, true, true}}}, {true}), 0);
}

TEST(one_barrier_settles_every_hazard_before_it) {
  // Steps 2 and 3 both depend on 0 and 1; one barrier is enough.
  const std::vector<Touches> steps{{writes(0, 0, 8)},
                                   {writes(1, 0, 8)},
                                   {reads(0, 0, 8), writes(2, 0, 8)},
                                   {reads(1, 0, 8), writes(3, 0, 8)}};
  CHECK_EQ(text_of(place_barriers(steps)), "0 2");
}

TEST(p26_02_a_group_waits_as_one_for_what_any_of_its_steps_needs) {
  // Step 2 reads what step 0 writes and starts together with step 1, which waits for nothing.
  const std::vector<Touches> steps{{writes(0, 0, 8)},
                                   {writes(1, 0, 8)},
                                   {reads(0, 0, 8), writes(2, 0, 8)},
                                   {reads(1, 0, 8), reads(2, 0, 8), writes(3, 0, 8)}};
  CHECK_EQ(text_of(place_barriers(steps)), "0 2 3");
  CHECK_EQ(text_of(place_barriers(steps, {-1, 1, 1, 1})), "0 1 3");
}

// ---------------------------------------------------------------- brute force

using Random = std::mt19937_64;
static int below(Random& r, int n) {
  return int(r() % uint64_t(n));
}

static std::vector<Touches> random_steps(Random& r, int resources) {
  std::vector<Touches> steps(size_t(2 + below(r, 12)));
  for (Touches& touches : steps)
    for (int i = below(r, 4); i >= 0; --i) {
      const int64_t begin = below(r, 30);
      const bool write = below(r, 3) == 0;
      touches.push_back({below(r, resources), begin, begin + 1 + below(r, 12), !write, write});
    }
  return steps;
}

static bool conflicting(const Touches& a, const Touches& b) {
  for (const Touch& x : a)
    for (const Touch& y : b)
      if (x.resource == y.resource && (x.write || y.write) &&
          std::max(x.begin, y.begin) < std::min(x.end, y.end))
        return true;
  return false;
}
// Every conflicting pair has a barrier behind the first and up to the second.
static bool fenced(const std::vector<Touches>& steps, const std::vector<bool>& barriers) {
  for (size_t s = 0; s < steps.size(); ++s)
    for (size_t t = s + 1; t < steps.size(); ++t) {
      bool between = false;
      for (size_t b = s + 1; b <= t; ++b) between = between || barriers[b];
      if (!between && conflicting(steps[s], steps[t])) return false;
    }
  return true;
}

TEST(p26_02_barriers_of_20000_random_plans_are_enough_and_none_is_spare) {
  Random r(1);
  int placed = 0, spared = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const auto steps = random_steps(r, 1 + below(r, 4));
    std::vector<bool> barriers = place_barriers(steps);
    CHECK(barriers[0]);
    CHECK(fenced(steps, barriers));
    for (size_t b = 1; b < barriers.size(); ++b) {
      spared += !barriers[b];
      if (!barriers[b]) continue;
      ++placed;
      barriers[b] = false;
      CHECK(!fenced(steps, barriers));
      barriers[b] = true;
    }
  }
  CHECK(placed > 20000 && spared > 20000);  // both sides are exercised
}

// Reachability by a search along every conflicting pair, nothing dropped.
static std::vector<std::vector<bool>> reach_of(const std::vector<Touches>& steps) {
  const size_t n = steps.size();
  std::vector<std::vector<bool>> reached(n, std::vector<bool>(n, false));
  for (size_t s = n; s-- > 0;)
    for (size_t t = s + 1; t < n; ++t) {
      if (!conflicting(steps[s], steps[t])) continue;
      reached[s][t] = true;
      for (size_t u = 0; u < n; ++u)
        if (reached[t][u]) reached[s][u] = true;
    }
  return reached;
}

TEST(reachability_of_the_edges_is_that_of_all_conflicts) {
  Random r(2);
  int pairs = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    const auto steps = random_steps(r, 1 + below(r, 4));
    const auto reached = reach_of(steps);
    const Reach reach(int(steps.size()), find_edges(steps));
    for (int a = 0; a < int(steps.size()); ++a)
      for (int b = 0; b < int(steps.size()); ++b) {
        CHECK_EQ(reach.precedes(a, b), bool(reached[size_t(a)][size_t(b)]));
        pairs += reach.precedes(a, b);
      }
  }
  CHECK(pairs > 10000);
}

namespace {
struct RandomDag {
  std::vector<Touches> steps;
  std::vector<Transient> transients;
};
}  // namespace

// Step i writes transient i and reads a few earlier ones: diamonds everywhere.
static RandomDag random_dag(Random& r) {
  RandomDag d;
  const int n = 2 + below(r, 14);
  for (int i = 0; i < n; ++i) {
    const int64_t bytes = 1 + below(r, 5) * 60;
    d.transients.push_back({bytes, {i}});
    Touches touches{writes(i, 0, bytes)};
    std::vector<int> read;
    for (int k = below(r, 3); k > 0 && i > 0; --k) {
      const int from = std::max(0, i - 1 - below(r, 4));
      if (std::find(read.begin(), read.end(), from) != read.end()) continue;
      read.push_back(from);
      touches.push_back(reads(from, 0, d.transients[size_t(from)].bytes));
      d.transients[size_t(from)].users.push_back(i);
    }
    d.steps.push_back(touches);
  }
  return d;
}

static bool all_ordered(const Transient& a, const Transient& b,
                        const std::vector<std::vector<bool>>& reached) {
  for (int u : a.users)
    for (int v : b.users)
      if (!reached[size_t(u)][size_t(v)]) return false;
  return true;
}

// The lowest aligned offset at which nothing placed is in the way, by trying every one.
static int64_t lowest_offset(const RandomDag& d, size_t i, const std::vector<int64_t>& offsets,
                             const std::vector<std::vector<bool>>& reached) {
  for (int64_t at = 0;; at += 64) {
    bool free = true;
    for (size_t j = 0; j < offsets.size(); ++j) {
      if (offsets[j] < 0) continue;
      const Transient &a = d.transients[i], &b = d.transients[j];
      if (all_ordered(a, b, reached) || all_ordered(b, a, reached)) continue;
      free = free && (at + a.bytes <= offsets[j] || offsets[j] + b.bytes <= at);
    }
    if (free) return at;
  }
}

TEST(packing_of_random_dags_is_the_rule_by_brute_force) {
  Random r(3);
  int shared = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    const RandomDag d = random_dag(r);
    const int n = int(d.steps.size());
    const auto reached = reach_of(d.steps);
    const BitMatrix sharing = find_sharing(d.transients, Reach(n, find_edges(d.steps)));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        const Transient &a = d.transients[size_t(i)], &b = d.transients[size_t(j)];
        const bool want = all_ordered(a, b, reached) || all_ordered(b, a, reached);
        CHECK_EQ(sharing.test(i, j), want);
        shared += want;
      }
    const Packing packing = pack(d.transients, sharing, 64);
    std::vector<int64_t> offsets(size_t(n), -1);
    std::vector<int> order;
    for (int i = 0; i < n; ++i) order.push_back(i);
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return d.transients[size_t(a)].bytes > d.transients[size_t(b)].bytes;
    });
    int64_t end = 0;
    for (int i : order) {
      offsets[size_t(i)] = lowest_offset(d, size_t(i), offsets, reached);
      CHECK_EQ(packing.offsets[size_t(i)], offsets[size_t(i)]);
      end = std::max(end, offsets[size_t(i)] + align_up(d.transients[size_t(i)].bytes, 64));
    }
    CHECK_EQ(packing.bytes, end);
  }
  CHECK(shared > 3000);
}

TEST(bits_cross_word_boundaries) {
  std::vector<Touches> chain;
  for (int i = 0; i < 200; ++i) chain.push_back({reads(i, 0, 4), writes(i + 1, 0, 4)});
  const Reach reach(200, find_edges(chain));
  for (int a = 0; a < 200; ++a)
    for (int b = 0; b < 200; ++b) CHECK_EQ(reach.precedes(a, b), a < b);
}

// Runs of steps as groups, of which each index is that of its first step.
static std::vector<int> random_groups(Random& r, size_t steps) {
  std::vector<int> groups(steps, -1);
  for (size_t s = 0; s < steps; ++s) {
    if (below(r, 2)) continue;
    const size_t end = std::min(steps, s + 1 + size_t(below(r, 4)));
    for (size_t t = s; t < end; ++t) groups[t] = int(s);
    s = end - 1;
  }
  return groups;
}

TEST(p26_02_barriers_of_20000_random_plans_stand_before_groups_or_between_their_own_steps) {
  Random r(2);
  int moved = 0, inside = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const auto steps = random_steps(r, 1 + below(r, 4));
    const std::vector<int> groups = random_groups(r, steps.size());
    const std::vector<bool> barriers = place_barriers(steps, groups);
    CHECK(fenced(steps, barriers));
    moved += barriers != place_barriers(steps);
    for (size_t s = 1; s < steps.size(); ++s) {
      if (!barriers[s] || groups[s] < 0 || groups[s] == int(s)) continue;
      bool own = false;
      for (size_t t = size_t(groups[s]); t < s; ++t) own |= conflicting(steps[t], steps[s]);
      CHECK(own);
      ++inside;
    }
  }
  CHECK(moved > 500 && inside > 500);
}
