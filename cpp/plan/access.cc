// What steps touch, in elements and in bytes: the views shared by the passes and their verifiers.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

void fail(const char* pass, const PlanData& p, int step, const std::string& text) {
  std::string where;
  if (step >= 0 && step < int(p.steps.size())) {
    const Step& s = p.steps[size_t(step)];
    where = " at step " + std::to_string(step) + " (" + s.def->name;
    if (s.node > 0 && s.node <= int(p.graph.nodes.size()))
      where += " of node " + std::to_string(s.node) + ", " + p.graph.node(s.node).site.to_string();
    where += ")";
  }
  throw Error(ErrorKind::internal, "internal",
              std::string("planner pass ") + pass + where + ": " + text + "; please report this");
}

bool is_copy(const Step& step) {
  return step.def->op == Op::copy;
}

bool follows(const Step& step) {
  return step.group >= 0 && !step.def->tiles;
}

ValueIndex::ValueIndex(const PlanData& p) : first_(p.graph.nodes.size() + 1, -1) {
  // A node's own results come before the copies made of them.
  for (int v = int(p.values.size()) - 1; v >= 0; --v) {
    const Value& value = p.values[size_t(v)];
    if (value.result == 0) first_[size_t(value.node)] = v;
  }
}
int ValueIndex::of(int node, int result) const {
  const int first = first_[size_t(node)];
  return first < 0 ? -1 : first + result;
}
int ValueIndex::of(const Source& s) const {
  return of(s.node, s.result);
}

Hull hull_of(const Shape& shape, const Strides& strides, int64_t offset) {
  int64_t last = offset;
  for (int axis = 0; axis < shape.rank(); ++axis) last += (shape[axis] - 1) * strides[size_t(axis)];
  return {offset, last + 1};
}

static Operand whole_value(const PlanData& p, int value, bool write) {
  Operand o;
  o.present = true;
  o.write = write;
  o.value = value;
  o.dtype = p.values[size_t(value)].type.dtype;
  o.hull = {0, p.values[size_t(value)].type.shape.elements()};
  return o;
}

static Operand operand_of(const View& view, const ValueIndex& index, bool write) {
  Operand o;
  o.present = true;
  o.write = write;
  o.dtype = view.dtype;
  o.hull = hull_of(view.shape, view.strides, view.offset);
  // The port says where a state read lives, whatever node wrote it last.
  if (view.source.port >= 0) {
    o.port = view.source.port;
    o.begin = view.source.begin;
    o.count = view.source.count;
  } else {
    o.value = index.of(view.source);
  }
  return o;
}

static std::vector<Operand> operands_of_copy(const PlanData& p, const ValueIndex& index,
                                             const Step& step) {
  std::vector<Operand> operands;
  if (step.copied_slot >= 0) {
    const View& view = *p.graph.node(step.node).in[size_t(step.copied_slot)];
    operands.push_back(operand_of(view, index, false));
  } else {
    operands.push_back(whole_value(p, step.reads_value[0], false));
    operands[0].hull.end = step.call.results[0].shape.elements();  // a prefix copies no more
  }
  operands.push_back(whole_value(p, step.writes_value[0], true));
  return operands;
}

std::vector<Operand> operands_of(const PlanData& p, const ValueIndex& index, const Step& step) {
  if (is_copy(step)) return operands_of_copy(p, index, step);
  std::vector<Operand> operands;
  const Node& node = p.graph.node(step.node);
  for (size_t slot = 0; slot < node.in.size(); ++slot) {
    const int copy = step.operand_copies.empty() ? -1 : step.operand_copies[slot];
    if (copy >= 0) operands.push_back(whole_value(p, copy, false));
    else if (!node.in[slot]) operands.push_back({});
    else operands.push_back(operand_of(*node.in[slot], index, int(slot) == node.def->writes));
  }
  for (size_t r = 0; r < node.call.results.size(); ++r)
    operands.push_back(whole_value(p, index.of(node.id, int(r)), true));
  return operands;
}

std::vector<Touches> dag_touches(const PlanData& p) {
  const ValueIndex index(p);
  std::vector<Touches> all;
  for (const Step& step : p.steps) {
    Touches touches;
    for (const Operand& o : operands_of(p, index, step)) {
      if (!o.present) continue;
      const int64_t size = size_of(o.dtype), base = o.value >= 0 ? 0 : o.begin;
      Touch t;
      t.resource = o.value >= 0 ? o.value : int(p.values.size()) + o.port;
      t.begin = (base + o.hull.begin) * size;
      t.end = (base + o.hull.end) * size;
      t.write = o.write;
      t.read = !o.write || o.value < 0;  // a scatter keeps the rows that it does not write
      touches.push_back(t);
    }
    all.push_back(std::move(touches));
  }
  return all;
}

static bool writes_operand(const Step& step, size_t operand) {
  return operand >= step.call.in.size() || int(operand) == step.def->writes;
}

std::vector<Touches> memory_touches(const PlanData& p) {
  std::vector<Touches> all;
  for (const Step& step : p.steps) {
    Touches touches;
    for (size_t i = 0; i < step.places.size(); ++i) {
      const Place& place = step.places[i];
      if (place.kind != Place::arena && place.kind != Place::port) continue;
      Touch t;
      int64_t base = place.offset;
      if (place.kind == Place::port) {
        const PortSlot& slot = p.slots[size_t(place.index)];
        t.resource = 1 + slot.port;
        base += slot.begin * size_of(p.graph.ports[size_t(slot.port)].dtype);
      }
      t.begin = base;
      t.end = base + place.bytes;
      t.write = writes_operand(step, i);
      t.read = !t.write || int(i) == step.def->writes;
      touches.push_back(t);
    }
    all.push_back(std::move(touches));
  }
  return all;
}

std::vector<Transient> transients_of(const PlanData& p, std::vector<int>& values) {
  std::vector<Transient> transients;
  values.clear();
  for (size_t v = 0; v < p.values.size(); ++v) {
    if (p.values[v].output_port >= 0) continue;
    values.push_back(int(v));
    transients.push_back({p.values[v].type.bytes(), p.values[v].users});
  }
  return transients;
}

int table_of(const PlanData& p, const Call& call) {
  if (call.def->op != Op::rope) return -1;
  int scalar = -1;
  int64_t rotary_dim = 0;
  for (size_t i = 0; i < call.def->attrs.size(); ++i) {
    const std::string_view name = call.def->attrs[i].name;
    if (name == "base_name" && call.attrs[i].set) scalar = call.attrs[i].scalar;
    if (name == "rotary_dim") rotary_dim = call.attrs[i].i;
  }
  for (size_t t = 0; t < p.tables.size() && scalar >= 0; ++t)
    if (p.tables[t].scalar == scalar && p.tables[t].rotary_dim == rotary_dim) return int(t);
  return -1;
}

int slot_of(const PlanData& p, int port, int64_t begin, int64_t count) {
  const auto at = std::lower_bound(p.slots.begin(), p.slots.end(), 0, [&](const PortSlot& s, int) {
    if (s.port != port) return s.port < port;
    return s.begin != begin ? s.begin < begin : s.count < count;
  });
  const bool found =
      at != p.slots.end() && at->port == port && at->begin == begin && at->count == count;
  return found ? int(at - p.slots.begin()) : -1;
}

}  // namespace accel::planner
