// ports: one slot a used range of a port. Two different ranges that overlap must both be read only.
#include <algorithm>
#include <map>
#include <tuple>

#include "plan/passes.h"

namespace accel::planner {

namespace {
using Key = std::tuple<int, int64_t, int64_t>;  // port, begin, count
struct Use {
  bool read = false, written = false;
  int last_node = 0, writer = 0;
};
}  // namespace

static std::string range_name(const PortDesc& port, int64_t begin, int64_t count) {
  if (begin == 0 && count == port.shape.elements()) return port.name;
  return port.name + "[" + std::to_string(begin) + ":" + std::to_string(begin + count) + "]";
}

static std::map<Key, Use> find_uses(const PlanData& p) {
  const ValueIndex index(p);
  std::map<Key, Use> uses;
  for (const Step& step : p.steps)
    for (const Operand& o : operands_of(p, index, step)) {
      if (!o.present) continue;
      Key key{o.port, o.begin, o.count};
      if (o.value >= 0) {
        const Value& v = p.values[size_t(o.value)];
        if (v.output_port < 0) continue;
        key = {v.output_port, 0, v.type.shape.elements()};
      }
      Use& use = uses[key];
      use.last_node = step.node;
      if (o.write) use.written = true, use.writer = step.node;
      // A state that a node writes keeps its other rows, so it is read as well.
      if (!o.write || o.value < 0) use.read = true;
    }
  return uses;
}

// A whole port is shown as a range here, so that both sides read alike.
static std::string range_text(const PortDesc& port, const Key& key, const Use& use) {
  const int64_t begin = std::get<1>(key), end = begin + std::get<2>(key);
  return port.name + "[" + std::to_string(begin) + ":" + std::to_string(end) + "], which is " +
         (use.written ? "written" : "read");
}

static void refuse_mixed(const PlanData& p, const std::map<Key, Use>& uses) {
  std::vector<Diagnostic> mistakes;
  for (auto a = uses.begin(); a != uses.end(); ++a) {
    const auto& [port, begin, count] = a->first;
    for (auto b = std::next(a); b != uses.end() && std::get<0>(b->first) == port; ++b) {
      if (std::get<1>(b->first) >= begin + count) break;  // keys ascend by begin
      if (!a->second.written && !b->second.written) continue;
      const bool a_later = a->second.last_node > b->second.last_node;
      const auto &later = a_later ? a : b, &earlier = a_later ? b : a;
      const Node& node = p.graph.node(later->second.last_node);
      const PortDesc& desc = p.graph.ports[size_t(port)];
      Diagnostic d;
      d.kind = ErrorKind::attr;
      d.op = node.def->name;
      d.operand = desc.name;
      d.site = node.site;
      d.message = d.op + ": " + desc.name + " is used as " +
                  range_text(desc, later->first, later->second) + ", and as " +
                  range_text(desc, earlier->first, earlier->second) +
                  ", and must be used by equal or disjoint ranges when one of them is written";
      mistakes.push_back(std::move(d));
    }
  }
  if (!mistakes.empty()) throw graph_error(std::move(mistakes));
}

void ports(PlanData& p) {
  const std::map<Key, Use> uses = find_uses(p);
  refuse_mixed(p, uses);
  p.slots.clear();
  for (const auto& [key, use] : uses) {
    PortSlot slot;
    std::tie(slot.port, slot.begin, slot.count) = key;
    slot.read = use.read;
    slot.written = use.written;
    p.slots.push_back(slot);
  }
}

static bool overlap(const PortSlot& a, const PortSlot& b) {
  return a.port == b.port && a.begin < b.begin + b.count && b.begin < a.begin + a.count;
}

static void verify_slot(const PlanData& p, size_t i) {
  const PortSlot& slot = p.slots[i];
  const std::string name = slot_name(p, int(i));
  const PortDesc& port = p.graph.ports[size_t(slot.port)];
  if (slot.begin < 0 || slot.count <= 0 || slot.begin + slot.count > port.shape.elements())
    fail("ports", p, -1, "slot " + name + " leaves its port");
  const bool may_write = port.kind == PortKind::State || port.kind == PortKind::Output;
  if (slot.written && !may_write) fail("ports", p, -1, "slot " + name + " is written");
  for (size_t j = 0; j < i; ++j)
    if (overlap(slot, p.slots[j]) && (slot.written || p.slots[j].written))
      fail("ports", p, -1, "slots " + name + " and " + slot_name(p, int(j)) + " overlap");
}

void verify_ports(const PlanData& p) {
  const ValueIndex index(p);
  std::vector<bool> used(p.slots.size(), false);
  for (size_t i = 0; i < p.slots.size(); ++i) verify_slot(p, i);
  for (int s = 0; s < int(p.steps.size()); ++s)
    for (const Operand& o : operands_of(p, index, p.steps[size_t(s)])) {
      if (!o.present) continue;
      const int port = o.value >= 0 ? p.values[size_t(o.value)].output_port : o.port;
      if (port < 0) continue;
      const int64_t count =
          o.value >= 0 ? p.values[size_t(o.value)].type.shape.elements() : o.count;
      const int slot = slot_of(p, port, o.value >= 0 ? 0 : o.begin, count);
      if (slot < 0) fail("ports", p, s, "a range that it uses has no slot");
      if (o.write && !p.slots[size_t(slot)].written)
        fail("ports", p, s, "a written slot says read");
      if (!o.write && !p.slots[size_t(slot)].read) fail("ports", p, s, "a read slot says written");
      used[size_t(slot)] = true;
    }
  for (size_t i = 0; i < used.size(); ++i)
    if (!used[i]) fail("ports", p, -1, "slot " + slot_name(p, int(i)) + " is used by no step");
}

}  // namespace accel::planner

namespace accel {

std::string slot_name(const PlanData& plan, int slot) {
  const PortSlot& s = plan.slots[size_t(slot)];
  return planner::range_name(plan.graph.ports[size_t(s.port)], s.begin, s.count);
}

}  // namespace accel
