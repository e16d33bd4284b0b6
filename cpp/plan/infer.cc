// infer: the type of every value. The shape rules ran when the graph was recorded; a call without
// results (a graph made by hand) is filled here.
#include "plan/passes.h"

namespace accel::planner {

void infer(PlanData& p) {
  p.values.clear();
  for (Node& node : p.graph.nodes) {
    if (node.call.results.empty()) node.call.results = node.def->infer(node.call);
    for (size_t r = 0; r < node.call.results.size(); ++r) {
      Value v;
      v.node = node.id;
      v.result = int(r);
      v.type = node.call.results[r];
      p.values.push_back(std::move(v));
    }
  }
}

static void fail_node(const Node& node, const std::string& text) {
  fail("infer", PlanData{}, -1,
       "node " + std::to_string(node.id) + " (" + node.def->name + ", " + node.site.to_string() +
           "): " + text);
}

// Elements and type of what a view stands on.
static Type source_type(const PlanData& p, const Node& node, const View& view) {
  const Source& s = view.source;
  if (s.port >= 0) {
    const PortDesc& port = p.graph.ports[size_t(s.port)];
    if (s.begin < 0 || s.count <= 0 || s.begin + s.count > port.shape.elements())
      fail_node(node, "a range leaves port " + port.name);
    return {port.dtype, Shape{s.count}};
  }
  if (s.node < 1 || s.node >= node.id) fail_node(node, "reads a node that does not come before it");
  const std::vector<Type>& results = p.graph.node(s.node).call.results;
  if (s.result < 0 || s.result >= int(results.size()))
    fail_node(node, "reads a result that is none");
  return results[size_t(s.result)];
}

static void verify_view(const PlanData& p, const Node& node, size_t slot) {
  const In& in = node.call.in[slot];
  if (in.present != node.in[slot].has_value()) fail_node(node, "an operand is absent on one side");
  if (!in.present) return;
  const View& view = *node.in[slot];
  if (in.dtype != view.dtype || !(in.shape == view.shape) || in.strides != view.strides ||
      in.offset != view.offset)
    fail_node(node, "call and operand " + std::to_string(slot) + " differ");
  const Type type = source_type(p, node, view);
  const Hull hull = hull_of(view.shape, view.strides, view.offset);
  if (type.dtype != view.dtype) fail_node(node, "a view has another dtype than its source");
  if (hull.begin < 0 || hull.end > type.shape.elements())
    fail_node(node, "a view leaves its source");
}

void verify_infer(const PlanData& p) {
  size_t v = 0;
  for (size_t i = 0; i < p.graph.nodes.size(); ++i) {
    const Node& node = p.graph.nodes[i];
    if (node.id != int(i) + 1) fail_node(node, "ids do not count from 1");
    if (node.in.size() != node.call.in.size()) fail_node(node, "call and operands differ in count");
    for (size_t slot = 0; slot < node.in.size(); ++slot) verify_view(p, node, slot);
    std::vector<Type> again;
    try {
      again = node.def->infer(node.call);
    } catch (const Refusal& r) {
      fail_node(node, "the shape rule refuses what was recorded: " + r.message);
    }
    if (again != node.call.results)
      fail_node(node, "the shape rule gives other types than recorded");
    for (const Type& type : again) {
      if (v >= p.values.size() || p.values[v].node != node.id || !(p.values[v].type == type))
        fail_node(node, "has no value of its type");
      ++v;
    }
  }
  if (v != p.values.size()) fail("infer", p, -1, "there are values of no node");
}

}  // namespace accel::planner
