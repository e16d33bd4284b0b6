// pack_weights: which weights stand in a layout of a kernel row's own (CONTRACT E14). A port is
// packed when every node that reads it packs it alike; a node's planes are packed all or none.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

namespace {

// A node that could read packed planes, and the ports of those planes.
struct Reader {
  const Node* node;
  accel::Packing packing;
  std::vector<int> ports;
};

// A plane as the caller binds it: a whole weight, not a view of one.
bool whole_weight(const PlanData& p, const View& v) {
  if (v.source.port < 0) return false;
  const PortDesc& port = p.graph.ports[size_t(v.source.port)];
  return port.kind == PortKind::Weight && v.contiguous() &&
         v.shape.elements() == port.shape.elements();
}

// The layout of the row that would take the call with packed planes; plain where none does.
accel::Packing packing_of(const PlanData& p, const Node& node) {
  Call call = node.call;
  call.packed = true;
  for (const KernelRow& row : call.def->kernels)
    if (row.backend == p.limits.backend && row.packing && !row.reject(call, p.limits))
      return row.packing(call);
  return {};
}

std::vector<int> planes_of(const PlanData& p, const Node& node) {
  std::vector<int> ports;
  const std::vector<Slot> slots = slots_of(*node.def, node.in.size());
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (slots[i].operand != 1 || !node.in[i]) continue;
    if (!whole_weight(p, *node.in[i])) return {};
    ports.push_back(node.in[i]->source.port);
  }
  return ports;
}

// Whether every node that reads the planes of `r` reads them as `r` does.
bool fits(const PlanData& p, const std::vector<Reader>& readers, const Reader& r) {
  for (const int port : r.ports)
    for (const int id : p.kept) {
      const Node& node = p.graph.node(id);
      const auto reads = std::count_if(node.in.begin(), node.in.end(), [&](const auto& in) {
        return in && in->source.port == port;
      });
      if (!reads) continue;
      const auto other = std::find_if(readers.begin(), readers.end(),
                                      [&](const Reader& o) { return o.node == &node; });
      if (reads > 1 || other == readers.end() || other->packing.layout != r.packing.layout ||
          !std::count(other->ports.begin(), other->ports.end(), port))
        return false;
    }
  return true;
}

}  // namespace

void pack_weights(PlanData& p) {
  p.packings.clear();
  if (!p.limits.pack) return;
  p.packings.resize(p.graph.ports.size());
  std::vector<Reader> readers;
  for (const int id : p.kept) {
    const Node& node = p.graph.node(id);
    Reader r{&node, packing_of(p, node), planes_of(p, node)};
    if (r.packing.layout != "plain" && !r.ports.empty()) readers.push_back(std::move(r));
  }
  for (;;) {
    const auto bad = std::find_if(readers.begin(), readers.end(),
                                  [&](const Reader& r) { return !fits(p, readers, r); });
    if (bad == readers.end()) break;
    readers.erase(bad);
  }
  for (const Reader& r : readers)
    for (const int port : r.ports) {
      p.packings[size_t(port)] = r.packing;
      p.graph.ports[size_t(port)].layout = r.packing.layout;
    }
}

bool reads_packed(const PlanData& p, const Node& node) {
  if (p.packings.empty()) return false;
  return std::any_of(node.in.begin(), node.in.end(), [&](const auto& in) {
    return in && in->source.port >= 0 && p.packings[size_t(in->source.port)].layout != "plain";
  });
}

}  // namespace accel::planner
