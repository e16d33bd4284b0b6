// live: the users of each value, its writer first.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

void live(PlanData& p) {
  for (Value& v : p.values) v.users.clear();
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const Step& step = p.steps[size_t(s)];
    for (int v : step.writes_value) p.values[size_t(v)].users.push_back(s);
    for (int v : step.reads_value) p.values[size_t(v)].users.push_back(s);
  }
}

// From the graph, not from the lists that live() walked.
void verify_live(const PlanData& p) {
  const ValueIndex index(p);
  std::vector<std::vector<int>> users(p.values.size());
  std::vector<int> writer(p.values.size(), -1);
  for (int s = 0; s < int(p.steps.size()); ++s)
    for (const Operand& o : operands_of(p, index, p.steps[size_t(s)])) {
      if (!o.present || o.value < 0) continue;
      std::vector<int>& list = users[size_t(o.value)];
      if (list.empty() || list.back() != s) list.push_back(s);
      if (o.write) writer[size_t(o.value)] = s;
    }
  for (size_t v = 0; v < p.values.size(); ++v) {
    const std::vector<int>& have = p.values[v].users;
    if (have != users[v]) {
      const int s = users[v].empty() ? -1 : users[v].back();
      fail("live", p, s, "value " + std::to_string(v) + " does not list exactly its users");
    }
    if (have.empty() || have.front() != writer[v])
      fail("live", p, writer[v], "value " + std::to_string(v) + " does not list its writer first");
  }
}

}  // namespace accel::planner
