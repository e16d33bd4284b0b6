// alias: arena offsets. Two transients share bytes only if every user of one precedes every user of
// the other in the DAG. An interval or a per-pair rule would let one live inside another's life.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

static void assign(PlanData& p, const std::vector<Transient>& transients,
                   const std::vector<int>& values, const Packing& packing) {
  const int64_t alignment = p.limits.alignment;
  for (size_t i = 0; i < values.size(); ++i)
    p.values[size_t(values[i])].arena_offset = packing.offsets[i];
  p.memory = {};
  for (const Transient& t : transients) p.memory.unaliased_bytes += align_up(t.bytes, alignment);
  p.memory.peak_bytes = interval_peak(transients, alignment);
  p.memory.transient_bytes = packing.bytes;
  if (packing.bytes > p.limits.max_bytes)
    throw capacity_error("too_large",
                         "plan " + p.label + ": its transients take " +
                             std::to_string(packing.bytes) + " bytes and must take at most " +
                             std::to_string(p.limits.max_bytes) +
                             ", the largest buffer of this device",
                         packing.bytes, p.limits.max_bytes, p.limits.max_bytes);
}

// A group runs as one: what one of its steps is done with is still read by another piece.
static void keep_groups_apart(const PlanData& p, const std::vector<Transient>& transients,
                              BitMatrix& sharing) {
  std::vector<std::vector<int>> used(p.steps.size());  // transients by first step of a group
  for (int t = 0; t < int(transients.size()); ++t)
    for (const int user : transients[size_t(t)].users)
      if (const int group = p.steps[size_t(user)].group; group >= 0)
        used[size_t(group)].push_back(t);
  for (const std::vector<int>& members : used)
    for (const int a : members)
      for (const int b : members) sharing.clear(a, b);
}

void alias(PlanData& p) {
  std::vector<int> values;
  const std::vector<Transient> transients = transients_of(p, values);
  const Reach reach(int(p.steps.size()), find_edges(dag_touches(p)));
  BitMatrix sharing = find_sharing(transients, reach);
  keep_groups_apart(p, transients, sharing);
  assign(p, transients, values, pack(transients, sharing, p.limits.alignment));
}

void alias_apart(PlanData& p) {
  std::vector<int> values;
  const std::vector<Transient> transients = transients_of(p, values);
  assign(p, transients, values, pack_apart(transients, p.limits.alignment));
}

// All pairs and a plain search, sharing nothing with the pass: row s holds what s reaches.
static std::vector<std::vector<bool>> reach_slowly(const std::vector<Touches>& steps) {
  const size_t n = steps.size();
  std::vector<std::vector<bool>> reached(n, std::vector<bool>(n, false));
  for (size_t s = n; s-- > 0;)
    for (size_t t = s + 1; t < n; ++t) {
      bool edge = false;
      for (const Touch& a : steps[s])
        for (const Touch& b : steps[t]) edge |= conflict(a, b);
      if (!edge || reached[s][t]) continue;
      reached[s][t] = true;
      for (size_t u = t + 1; u < n; ++u)
        if (reached[t][u]) reached[s][u] = true;
    }
  return reached;
}

static bool precedes(const Value& a, const Value& b,
                     const std::vector<std::vector<bool>>& reached) {
  for (int u : a.users)
    for (int v : b.users)
      if (!reached[size_t(u)][size_t(v)]) return false;
  return true;
}

static void verify_memory(const PlanData& p) {
  int64_t end = 0, sum = 0, peak = 0;
  for (size_t s = 0; s < p.steps.size(); ++s) {
    int64_t live = 0;
    for (const Value& v : p.values)
      if (v.output_port < 0 && v.users.front() <= int(s) && int(s) <= v.users.back())
        live += align_up(v.type.bytes(), p.limits.alignment);
    peak = std::max(peak, live);
  }
  for (const Value& v : p.values) {
    if (v.output_port >= 0) continue;
    sum += align_up(v.type.bytes(), p.limits.alignment);
    end = std::max(end, align_up(v.arena_offset + v.type.bytes(), p.limits.alignment));
  }
  if (p.memory.unaliased_bytes != sum || p.memory.peak_bytes != peak ||
      p.memory.transient_bytes != end)
    fail("alias", p, -1, "the memory report is wrong");
}

void verify_alias(const PlanData& p) {
  const std::vector<std::vector<bool>> reached = reach_slowly(dag_touches(p));
  for (size_t i = 0; i < p.values.size(); ++i) {
    const Value& a = p.values[i];
    const int writer = a.users.empty() ? -1 : a.users.front();
    if ((a.output_port < 0) != (a.arena_offset >= 0))
      fail("alias", p, writer, "a value lives in the arena and in a port, or in neither");
    if (a.output_port >= 0) continue;
    if (a.arena_offset % p.limits.alignment) fail("alias", p, writer, "an offset is not aligned");
    for (size_t j = 0; j < i; ++j) {
      const Value& b = p.values[j];
      if (b.output_port >= 0) continue;
      const bool apart = a.arena_offset + a.type.bytes() <= b.arena_offset ||
                         b.arena_offset + b.type.bytes() <= a.arena_offset;
      if (!apart && !precedes(a, b, reached) && !precedes(b, a, reached))
        fail("alias", p, writer,
             "values " + std::to_string(j) + " and " + std::to_string(i) +
                 " share bytes and their users are not ordered");
    }
  }
  verify_memory(p);
}

}  // namespace accel::planner
