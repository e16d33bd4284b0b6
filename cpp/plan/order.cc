// order: one linear order of the steps.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

// A copy of an operand stands before its node, copies of a node's results behind it.
static int rank_of(const Step& step) {
  if (!is_copy(step)) return 1;
  return step.copied_slot >= 0 ? 0 : 2;
}

void order(PlanData& p) {
  // Node ids ascend in record order.
  std::stable_sort(p.steps.begin(), p.steps.end(), [](const Step& a, const Step& b) {
    return a.node != b.node ? a.node < b.node : rank_of(a) < rank_of(b);
  });
}

void verify_order(const PlanData& p) {
  std::vector<bool> written(p.values.size(), false);
  size_t copies = 0, nodes = 0;
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const Step& step = p.steps[size_t(s)];
    for (int v : step.reads_value)
      if (!written[size_t(v)]) fail("order", p, s, "reads a value before it is written");
    for (int v : step.writes_value) {
      if (written[size_t(v)]) fail("order", p, s, "writes a value that is already written");
      written[size_t(v)] = true;
    }
    if (is_copy(step)) {
      ++copies;
      const int neighbour = s + (step.copied_slot >= 0 ? 1 : -1);
      if (neighbour < 0 || neighbour >= int(p.steps.size()) ||
          p.steps[size_t(neighbour)].node != step.node)
        fail("order", p, s, "a copy does not stand beside its node");
    } else if (nodes >= p.kept.size() || p.kept[nodes++] != step.node) {
      fail("order", p, s, "nodes are not in record order");
    }
  }
  if (nodes != p.kept.size() || copies + nodes != p.steps.size())
    fail("order", p, -1, "a kept node has no step");
  for (bool w : written)
    if (!w) fail("order", p, -1, "a value is never written");
  std::vector<bool> transient(p.values.size(), true);
  const int unwritten = find_unwritten_read(dag_touches(p), transient);
  if (unwritten >= 0) fail("order", p, unwritten, "reads bytes that no earlier step wrote");
}

}  // namespace accel::planner
