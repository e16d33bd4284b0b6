// explain: the plan as text. The same plan gives the same text; works after any pass.
#include <algorithm>

#include "plan/passes.h"

namespace accel {
namespace planner {

static std::string bytes_text(int64_t begin, int64_t bytes) {
  return "[" + std::to_string(begin) + ":" + std::to_string(begin + bytes) + "]";
}

static std::string place_text(const PlanData& p, const Place& place) {
  switch (place.kind) {
    case Place::none:
      return "absent";
    case Place::arena:
      return "arena " + bytes_text(place.offset, place.bytes);
    case Place::port:
      return "port " + slot_name(p, place.index) + " " + bytes_text(place.offset, place.bytes);
    case Place::table: {
      const FrequencyTable& t = p.tables[size_t(place.index)];
      return "frequencies of " + p.graph.scalars[size_t(t.scalar)].name + " over " +
             std::to_string(t.rotary_dim);
    }
  }
  return "";
}

static std::string memory_text(const PlanData& p) {
  return "memory: transient " + std::to_string(p.memory.transient_bytes) + " bytes, peak " +
         std::to_string(p.memory.peak_bytes) + ", unaliased " +
         std::to_string(p.memory.unaliased_bytes) + "\n";
}

static std::string ports_text(const PlanData& p) {
  std::string text = "ports:\n";
  for (const PortDesc& port : p.graph.ports)
    text += std::string("  ") + name_of(port.kind) + " " + port.name + " " +
            Type{port.dtype, port.shape}.to_string() + "\n";
  for (const ScalarDesc& s : p.graph.scalars)
    text += std::string("  scalar ") + s.name + " " + name_of(s.kind) + "\n";
  text += "slots:\n";
  for (int i = 0; i < int(p.slots.size()); ++i)
    text += "  " + slot_name(p, i) + (p.slots[size_t(i)].read ? " read" : "") +
            (p.slots[size_t(i)].written ? " written" : "") + "\n";
  return text;
}

static std::string in_text(const In& in) {
  std::string text = Type{in.dtype, in.shape}.to_string();
  if (!in.contiguous())
    text += " strides " + text_of(in.strides) + " offset " + std::to_string(in.offset);
  return text;
}

static std::string operands_text(const PlanData& p, const Step& step) {
  std::string text;
  const std::vector<Slot> slots = slots_of(*step.def, step.call.in.size());
  const auto at = [&](size_t i) {
    return i < step.places.size() ? "  " + place_text(p, step.places[i]) : std::string();
  };
  for (size_t i = 0; i < step.call.in.size(); ++i) {
    const In& in = step.call.in[i];
    const bool table = i < step.places.size() && step.places[i].kind == Place::table;
    if (in.present || table)
      text += "      " + slots[i].name + (in.present ? " " + in_text(in) : "") + at(i) + "\n";
  }
  for (size_t r = 0; r < step.call.results.size(); ++r)
    text += "      -> " + step.call.results[r].to_string() + at(step.call.in.size() + r) + "\n";
  return text;
}

static std::string selection_text(const Selection& s) {
  std::string text = "node " + std::to_string(s.node) + " " + s.op + ", " + s.site.to_string() +
                     ": " + s.kernel + ", " + s.reason + "\n";
  for (const std::string& why : s.rejected) text += "      rejected " + why + "\n";
  return text;
}

// A node's entry comes first and its copies follow in the order of their steps.
static const Selection* entry_of(const PlanData& p, const Step& step, int copies_before) {
  for (size_t i = 0; i < p.selections.size(); ++i)
    if (p.selections[i].node == step.node)
      return &p.selections[i + size_t(is_copy(step) ? 1 + copies_before : 0)];
  return nullptr;
}

static bool starts_together(const PlanData& p, size_t s) {
  return s > 0 && s < p.commands.size() && p.commands[s].dispatch == p.commands[s - 1].dispatch;
}
static bool is_combined(const PlanData& p, size_t s) {
  return std::any_of(p.combined.begin(), p.combined.end(),
                     [&](const Combined& c) { return c.first < int(s) && int(s) <= c.last; });
}

static std::string steps_text(const PlanData& p) {
  std::string text = "steps, | marks a barrier";
  if (p.limits.fuse)
    text += p.limits.backend == Backend::cpu ? ", + what starts with the step before"
                                             : ", & what one launch does with the step before";
  text += ":\n";
  int node = 0, copies = 0;
  for (size_t s = 0; s < p.steps.size(); ++s) {
    const Step& step = p.steps[s];
    if (step.node != node) node = step.node, copies = 0;
    const Selection* entry = entry_of(p, step, copies);
    copies += is_copy(step);
    const char* mark = is_combined(p, s) ? "&" : starts_together(p, s) ? "+" : " ";
    text += (step.barrier_before ? "  |" : "   ") + std::string(mark) + std::to_string(s) + " ";
    if (entry) text += selection_text(*entry);
    text += operands_text(p, step);
  }
  for (const Selection& s : p.selections)
    if (s.kernel == "none") text += "    - " + selection_text(s);
  return text;
}

}  // namespace planner

std::string explain(const PlanData& p) {
  int barriers = 0;
  for (const Step& step : p.steps) barriers += step.barrier_before;
  std::string text =
      "plan " + (p.label.empty() ? "without a label" : p.label) + ": " + name_of(p.limits.backend) +
      " " + p.limits.isa + ", " + std::to_string(p.graph.nodes.size()) + " nodes, " +
      std::to_string(p.steps.size()) + " steps, " + std::to_string(barriers) + " barriers";
  if (!p.combined.empty())
    text += ", " + std::to_string(p.combined.size()) + " runs of steps in one launch each";
  if (p.limits.fuse && p.limits.backend == Backend::cpu && !p.commands.empty())
    text += ", " + std::to_string(p.commands.back().dispatch + 1) + " dispatches";
  text += "\n";
  text += planner::memory_text(p) + planner::ports_text(p) + planner::steps_text(p);
  return text;
}

}  // namespace accel
