// prune: keeps the nodes whose results reach an output or a state write, and drops the others'
// values.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

void prune(PlanData& p) {
  const std::vector<Node>& nodes = p.graph.nodes;
  std::vector<bool> needed(nodes.size() + 1, false);
  for (const Output& out : p.graph.outputs) needed[size_t(out.value.source.node)] = true;
  p.kept.clear();
  // Operands come before their users, so one walk backwards reaches everything.
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    if (!needed[size_t(node->id)] && node->def->writes < 0) continue;
    p.kept.push_back(node->id);
    for (const std::optional<View>& view : node->in)
      if (view && view->source.port < 0) needed[size_t(view->source.node)] = true;
  }
  std::reverse(p.kept.begin(), p.kept.end());
  std::erase_if(p.values, [&](const Value& v) {
    return !std::binary_search(p.kept.begin(), p.kept.end(), v.node);
  });
}

void verify_prune(const PlanData& p) {
  std::vector<int> uses(p.graph.nodes.size() + 1, 0);  // by kept nodes, outputs and state writes
  std::vector<bool> kept(p.graph.nodes.size() + 1, false);
  for (int id : p.kept) kept[size_t(id)] = true;
  if (!std::is_sorted(p.kept.begin(), p.kept.end())) fail("prune", p, -1, "kept is not ascending");
  for (const Output& out : p.graph.outputs) ++uses[size_t(out.value.source.node)];
  for (const Node& node : p.graph.nodes) {
    if (node.def->writes >= 0) ++uses[size_t(node.id)];
    if (!kept[size_t(node.id)]) continue;
    for (const std::optional<View>& view : node.in)
      if (view && view->source.port < 0) ++uses[size_t(view->source.node)];
  }
  for (const Node& node : p.graph.nodes)
    if (kept[size_t(node.id)] != (uses[size_t(node.id)] > 0))
      fail("prune", p, -1,
           "node " + std::to_string(node.id) + " (" + node.def->name + ", " +
               node.site.to_string() + ") is " +
               (kept[size_t(node.id)] ? "kept for nothing" : "needed and dropped"));
  for (const Value& v : p.values)
    if (!kept[size_t(v.node)]) fail("prune", p, -1, "a value of a dropped node is left");
  const ValueIndex index(p);
  for (int id : p.kept)
    for (size_t r = 0; r < p.graph.node(id).call.results.size(); ++r) {
      const int v = index.of(id, int(r));
      if (v < 0 || v >= int(p.values.size()) || p.values[size_t(v)].node != id ||
          p.values[size_t(v)].result != int(r))
        fail("prune", p, -1, "node " + std::to_string(id) + " has lost a value");
    }
}

}  // namespace accel::planner
