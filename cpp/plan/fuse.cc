// fuse: elementwise steps that run on each piece of a product as it is written, while it is in the
// cache. The kernels and their arithmetic stay; only who runs when changes, so no bit does.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

static constexpr int kLongest = 8;  // steps of a group

static std::vector<int> writers_of(const PlanData& p) {
  std::vector<int> writers(p.values.size(), -1);
  for (int s = 0; s < int(p.steps.size()); ++s)
    for (const int v : p.steps[size_t(s)].writes_value) writers[size_t(v)] = s;
  return writers;
}

// Products whose chunks are the same rectangles.
static bool cut_alike(const Step& a, const Step& b) {
  if (a.row != b.row) return false;
  Params x, y;
  a.def->params(a.call, x);
  b.def->params(b.call, y);
  return x.words == y.words;
}

static int64_t result_elements(const Step& step) {
  return step.call.results[0].shape.elements();
}

// Of the results of steps first .. s - 1 the step reads whole ones, element i for its element i.
static bool reads_in_step(const PlanData& p, const ValueIndex& index,
                          const std::vector<int>& writers, int first, int s) {
  const Step& step = p.steps[size_t(s)];
  const std::vector<Operand> operands = operands_of(p, index, step);
  for (size_t i = 0; i < step.call.in.size(); ++i) {
    const Operand& o = operands[i];
    if (!o.present || o.value < 0 || writers[size_t(o.value)] < first) continue;
    const In& in = step.call.in[i];
    if (!in.contiguous() || in.shape.elements() != result_elements(step)) return false;
  }
  return true;
}

static bool reads_later_than(const Step& step, const std::vector<int>& writers, int first) {
  return std::any_of(step.reads_value.begin(), step.reads_value.end(),
                     [&](int v) { return writers[size_t(v)] >= first; });
}

// Whether steps first .. s can be one group: products cut alike that read nothing of it, and
// elementwise steps that read its results in step.
static bool is_group(const PlanData& p, const ValueIndex& index, const std::vector<int>& writers,
                     int first, int s) {
  if (s - first + 1 > kLongest || !p.steps[size_t(first)].def->tiles) return false;
  for (int t = first; t <= s; ++t) {
    const Step& step = p.steps[size_t(t)];
    if (is_copy(step) || step.call.results.size() != 1 || step.def->writes >= 0) return false;
    if (result_elements(step) != result_elements(p.steps[size_t(first)])) return false;
    if (step.def->tiles) {
      if (!cut_alike(step, p.steps[size_t(first)])) return false;
      if (reads_later_than(step, writers, first)) return false;
    } else if (!step.def->packs || !reads_later_than(step, writers, first) ||
               !reads_in_step(p, index, writers, first, t)) {
      return false;
    }
  }
  return true;
}

// The earliest step with which a group can begin that step s ends, or -1.
static int group_before(const PlanData& p, const ValueIndex& index, const std::vector<int>& writers,
                        int s) {
  std::vector<int> starts;
  for (const int v : p.steps[size_t(s)].reads_value) {
    const int writer = writers[size_t(v)];
    if (writer < 0 || s - writer >= kLongest) continue;
    const Step& step = p.steps[size_t(writer)];
    if (step.group >= 0) starts.push_back(step.group);
    else if (step.def->tiles) starts.push_back(writer);
  }
  std::sort(starts.begin(), starts.end());
  for (const int first : starts)
    if (is_group(p, index, writers, first, s)) return first;
  return -1;
}

static std::string name_of(const PlanData& p, int s) {
  const Step& step = p.steps[size_t(s)];
  return std::string(step.def->name) + " of node " + std::to_string(step.node);
}

static void tell(PlanData& p) {
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const Step& step = p.steps[size_t(s)];
    if (!follows(step)) continue;
    std::string products;
    for (int t = step.group; t < s; ++t)
      if (p.steps[size_t(t)].def->tiles)
        products += (products.empty() ? "" : " and ") + name_of(p, t);
    for (Selection& selection : p.selections)
      if (selection.node == step.node && selection.kernel == step.row->kernel)
        selection.reason += "; fused: runs on each piece of " + products;
  }
}

void fuse(PlanData& p) {
  for (Step& step : p.steps) step.group = -1;
  if (!p.limits.fuse || p.limits.backend != Backend::cpu) return;
  const ValueIndex index(p);
  const std::vector<int> writers = writers_of(p);
  for (int s = 0; s < int(p.steps.size()); ++s) {
    if (!p.steps[size_t(s)].def->packs || p.steps[size_t(s)].chain >= 0) continue;
    const int first = group_before(p, index, writers, s);
    for (int t = first; first >= 0 && t <= s; ++t) p.steps[size_t(t)].group = first;
  }
  tell(p);
}

// From the graph: a group is a run of steps from its first on, and its products see nothing of it.
void verify_fuse(const PlanData& p) {
  if (p.limits.backend != Backend::cpu) return;
  const ValueIndex index(p);
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const Step& step = p.steps[size_t(s)];
    if (step.group < 0) continue;
    if (!p.limits.fuse) fail("fuse", p, s, "a group without fusing");
    if (step.group > s || (step.group < s && p.steps[size_t(s) - 1].group != step.group))
      fail("fuse", p, s, "a group is not a run of steps");
    const Step& head = p.steps[size_t(step.group)];
    if (!head.def->tiles || (step.def->tiles && !cut_alike(head, step)))
      fail("fuse", p, s, "the products of a group are not cut alike");
    if (result_elements(step) != result_elements(head))
      fail("fuse", p, s, "a group has results of two sizes");
    for (const Operand& o : operands_of(p, index, step)) {
      if (!o.present || o.write || o.value < 0) continue;
      for (int t = step.group; t < s; ++t)
        for (const int v : p.steps[size_t(t)].writes_value)
          if (v == o.value &&
              (step.def->tiles || o.hull.begin != 0 || o.hull.end != result_elements(step)))
            fail("fuse", p, s, "a step of a group reads more than its own piece");
    }
  }
}

void verify_fused_places(const PlanData& p) {
  if (p.limits.backend != Backend::cpu) return;
  const std::vector<Touches> steps = memory_touches(p);
  for (int s = 0; s < int(p.steps.size()); ++s)
    for (int t = p.steps[size_t(s)].group; t >= 0 && t < s; ++t)
      for (const Touch& a : steps[size_t(t)])
        for (const Touch& b : steps[size_t(s)]) {
          const bool own = a.write && !b.write && a.begin == b.begin && a.end == b.end &&
                           follows(p.steps[size_t(s)]);
          if (conflict(a, b) && !own)
            fail("fuse", p, s, "touches bytes that step " + std::to_string(t) + " touches");
        }
}

}  // namespace accel::planner
