// materialize: where outputs live, and the copies. A value that is one output whole is written
// straight into the port's buffer; one under several names, or a part of one, is copied; so is an
// operand that a node would overwrite. Every copy is reported.
#include <algorithm>

#include "ops/rules.h"
#include "plan/passes.h"

namespace accel::planner {

static const std::string& port_name(const PlanData& p, int port) {
  return p.graph.ports[size_t(port)].name;
}

static std::string copy_reason(const PlanData& p, const Output& out, int64_t of,
                               const std::vector<const Output*>& together) {
  const int64_t n = out.value.shape.elements();
  if (n != of)
    return "output " + port_name(p, out.port) + " is the first " + std::to_string(n) + " of " +
           std::to_string(of) + " elements";
  std::string names;
  for (const Output* o : together) names += (names.empty() ? "" : ", ") + port_name(p, o->port);
  return "one value is " + std::to_string(together.size()) + " outputs: " + names;
}

// The step and the report's entry of one copy. Entries follow their node's and the copies before.
static void add_copy(PlanData& p, Step step, const Type& type, const std::string& reason,
                     const Site& site) {
  In x;
  x.present = true;
  x.dtype = type.dtype;
  x.shape = type.shape;
  x.strides = contiguous_strides(x.shape);
  step.def = &op_def(Op::copy);
  step.call.def = step.def;
  step.call.in.push_back(x);
  step.call.results.push_back(type);
  Choice choice = accel::select(step.call, p.limits, site);
  step.row = choice.row;
  Selection s;
  s.op = step.def->name;
  s.kernel = choice.row->kernel;
  s.reason = reason;
  s.rejected = std::move(choice.rejected);
  s.node = step.node;
  s.site = site;
  p.steps.push_back(std::move(step));
  const auto at = std::upper_bound(p.selections.begin(), p.selections.end(), s.node,
                                   [](int node, const Selection& o) { return node < o.node; });
  p.selections.insert(at, std::move(s));
}

static int add_value(PlanData& p, int node, int result, const Type& type, int output_port) {
  Value v;
  v.node = node;
  v.result = result;
  v.type = type;
  v.output_port = output_port;
  p.values.push_back(std::move(v));
  return int(p.values.size()) - 1;
}

static void copy_output(PlanData& p, const Output& out, int value,
                        const std::vector<const Output*>& together) {
  const Source& source = out.value.source;
  const int64_t of = p.values[size_t(value)].type.shape.elements();
  const Type type = out.value.type();
  Step step;
  step.node = source.node;
  step.reads_value.push_back(value);
  step.writes_value.push_back(add_value(p, source.node, source.result, type, out.port));
  add_copy(p, std::move(step), type, copy_reason(p, out, of, together), out.site);
}

// A node that reads the range it writes would see its own rows change under it.
static void copy_operands(PlanData& p, size_t s) {
  const Node& node = p.graph.node(p.steps[s].node);
  if (node.def->writes < 0) return;
  const Source& written = node.in[size_t(node.def->writes)]->source;
  for (size_t slot = 0; slot < node.in.size(); ++slot) {
    if (int(slot) == node.def->writes || !node.in[slot]) continue;
    const View& view = *node.in[slot];
    if (view.source.port != written.port || view.source.begin != written.begin ||
        view.source.count != written.count)
      continue;
    const int value = add_value(p, node.id, -1, view.type(), -1);
    p.steps[s].operand_copies.resize(node.in.size(), -1);
    p.steps[s].operand_copies[slot] = value;
    Step step;
    step.node = node.id;
    step.copied_slot = int(slot);
    step.writes_value.push_back(value);
    const std::string reason = slots_of(*node.def, node.in.size())[slot].name + " is a part of " +
                               port_name(p, written.port) + ", which the node writes";
    add_copy(p, std::move(step), view.type(), reason, node.site);
  }
}

static void place_outputs(PlanData& p, const ValueIndex& index) {
  std::vector<std::vector<const Output*>> outputs(p.values.size());
  for (const Output& out : p.graph.outputs)
    outputs[size_t(index.of(out.value.source))].push_back(&out);
  for (size_t v = 0; v < outputs.size(); ++v) {
    const std::vector<const Output*>& together = outputs[v];
    if (together.empty()) continue;
    const Output& first = *together.front();
    const bool whole = first.value.shape.elements() == p.values[v].type.shape.elements();
    if (together.size() == 1 && whole) {
      p.values[v].output_port = first.port;
      continue;
    }
    for (const Output* out : together) copy_output(p, *out, int(v), together);
  }
}

static void add_table(PlanData& p, const Call& call) {
  if (call.def->op != Op::rope || table_of(p, call) >= 0) return;
  FrequencyTable table;
  bool by_base = false;
  for (size_t i = 0; i < call.def->attrs.size(); ++i) {
    const std::string_view name = call.def->attrs[i].name;
    if (name == "base_name" && call.attrs[i].set)
      by_base = true, table.scalar = call.attrs[i].scalar;
    if (name == "rotary_dim") table.rotary_dim = call.attrs[i].i;
  }
  if (by_base) p.tables.push_back(table);
}

void materialize(PlanData& p) {
  const ValueIndex index(p);
  const size_t nodes = p.steps.size();
  for (size_t s = 0; s < nodes; ++s) {
    copy_operands(p, s);
    Step& step = p.steps[s];
    for (const Operand& o : operands_of(p, index, step)) {
      if (!o.present || o.value < 0) continue;
      std::vector<int>& list = o.write ? step.writes_value : step.reads_value;
      if (std::find(list.begin(), list.end(), o.value) == list.end()) list.push_back(o.value);
    }
    add_table(p, step.call);
  }
  place_outputs(p, index);
}

static void verify_layout(const PlanData& p, int s) {
  const Step& step = p.steps[size_t(s)];
  for (const In& in : step.call.in) {
    if (!in.present || step.def->views || in.contiguous()) continue;
    const bool run = step.def->packs && run_of(step.call.results[0].shape, in).ok;
    if (!run) fail("materialize", p, s, "an operand is strided and its kernel reads it plain");
  }
}

static void verify_output(const PlanData& p, const Output& out) {
  int holders = 0;
  for (const Value& v : p.values) {
    if (v.output_port != out.port) continue;
    ++holders;
    if (v.node != out.value.source.node || v.result != out.value.source.result ||
        v.type.dtype != out.value.dtype ||
        v.type.shape.elements() != p.graph.ports[size_t(out.port)].shape.elements())
      fail("materialize", p, -1, "output " + port_name(p, out.port) + " holds another value");
  }
  if (holders != 1)
    fail("materialize", p, -1,
         "output " + port_name(p, out.port) + " has " + std::to_string(holders) + " values");
}

static void verify_copy(const PlanData& p, int s) {
  const Step& step = p.steps[size_t(s)];
  const bool before = step.copied_slot >= 0;
  if (step.writes_value.size() != 1 || step.reads_value.size() != (before ? 0 : 1))
    fail("materialize", p, s, "a copy does not go from one place to another");
  const Value& to = p.values[size_t(step.writes_value[0])];
  if ((to.output_port < 0) != before)
    fail("materialize", p, s, "a copy of an operand is an output, or one of a result is none");
  if (before) return;
  const Value& from = p.values[size_t(step.reads_value[0])];
  if (from.output_port >= 0) fail("materialize", p, s, "a copy of a result reads an output");
  if (step.call.results[0].shape.elements() > from.type.shape.elements())
    fail("materialize", p, s, "a copy reads beyond its value");
}

static void verify_apart(const PlanData& p, const ValueIndex& index, int s) {
  const std::vector<Operand> operands = operands_of(p, index, p.steps[size_t(s)]);
  for (size_t i = 0; i < operands.size(); ++i)
    for (size_t j = 0; j < operands.size(); ++j) {
      const Operand &a = operands[i], &b = operands[j];
      if (i == j || !a.present || !b.present || !a.write || a.value != b.value) continue;
      // Ranges that differ and overlap are refused by ports, which names them.
      const bool apart =
          a.value < 0 && (a.port != b.port || a.begin != b.begin || a.count != b.count);
      if (!apart) fail("materialize", p, s, "reads what it writes");
    }
}

static void verify_report(const PlanData& p) {
  int copies = 0, listed = 0;
  for (const Step& step : p.steps) copies += is_copy(step);
  for (size_t i = 0; i < p.selections.size(); ++i) {
    if (p.selections[i].op != op_def(Op::copy).name) continue;
    ++listed;
    if (i == 0 || p.selections[i].node != p.selections[i - 1].node)
      fail("materialize", p, -1, "a copy's entry does not follow its node's");
  }
  if (copies != listed) fail("materialize", p, -1, "copies and their entries differ in count");
}

void verify_materialize(const PlanData& p) {
  const ValueIndex index(p);
  for (const Output& out : p.graph.outputs) verify_output(p, out);
  for (const Value& v : p.values)
    if (v.output_port >= 0 && p.graph.ports[size_t(v.output_port)].kind != PortKind::Output)
      fail("materialize", p, -1, "a value lives in a port that is no output");
  for (int s = 0; s < int(p.steps.size()); ++s) {
    if (is_copy(p.steps[size_t(s)])) verify_copy(p, s);
    verify_layout(p, s);
    const Call& call = p.steps[size_t(s)].call;
    if (call.def->op == Op::rope && (table_of(p, call) >= 0) == call.in.back().present)
      fail("materialize", p, s, "rope has no frequencies, or two");
  }
  for (int s = 0; s < int(p.steps.size()); ++s) verify_apart(p, index, s);
  verify_report(p);
}

}  // namespace accel::planner
