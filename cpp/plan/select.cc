// select: one kernel a kept node, with the reason and the rows that were rejected.
#include <cstring>

#include "ops/attention_forms.h"
#include "plan/passes.h"

namespace accel {

Blocks blocks_of(const Call& call) {
  Blocks blocks;
  if (call.def->op != Op::attention) return blocks;
  blocks.size = 128;
  blocks.count = (attention::reach_of(call) + blocks.size - 1) / blocks.size;
  return blocks;
}

namespace planner {

// Form, positions and blocks, as CONTRACT 15.2 asks.
static std::string attention_extent(const Call& call) {
  const int64_t positions = attention::reach_of(call), blocks = blocks_of(call).count;
  std::string text = attention::name_of(attention::form_of(call));
  if (call.in[attention::pages].present)
    text += ", pages of " + std::to_string(call.attr(attention::block).i);
  return text + ", " + std::to_string(positions) + " positions in " + std::to_string(blocks) +
         (blocks == 1 ? " block" : " blocks");
}

static std::string reason_of(const Call& call, const KernelRow& row) {
  std::string text = row.reason;
  const auto add = [&](const std::string& part) { text += (text.empty() ? "" : "; ") + part; };
  if (const char* note = call.def->note ? call.def->note(call) : nullptr) add(note);
  if (call.def->op == Op::attention) add(attention_extent(call));
  const bool summed = std::strcmp(row.order, "exact") != 0;
  if (summed && text.find(row.order) == std::string::npos) add(std::string("order ") + row.order);
  if (row.packing) add("weight laid out " + row.packing(call).layout);
  if (text.empty()) text = "exact";
  return text;
}

void select(PlanData& p, const Progress& progress) {
  pack_weights(p);
  p.steps.clear();
  p.selections.clear();
  size_t next_kept = 0;
  const int total = int(p.graph.nodes.size());
  for (const Node& node : p.graph.nodes) {
    Selection s;
    s.op = node.def->name;
    s.node = node.id;
    s.site = node.site;
    if (next_kept == p.kept.size() || p.kept[next_kept] != node.id) {
      s.kernel = "none";
      s.reason = "its result reaches no output and no state";
    } else {
      ++next_kept;
      Step step;
      step.node = node.id;
      step.def = node.def;
      step.call = node.call;
      step.call.packed = reads_packed(p, node);
      Choice choice = accel::select(step.call, p.limits, node.site);
      step.row = choice.row;
      s.kernel = choice.row->kernel;
      s.reason = reason_of(step.call, *choice.row);
      s.rejected = std::move(choice.rejected);
      p.steps.push_back(std::move(step));
    }
    p.selections.push_back(std::move(s));
    if (progress) progress("select", node.id, total);
  }
}

void verify_select(const PlanData& p) {
  size_t step = 0;
  if (p.selections.size() != p.graph.nodes.size())
    fail("select", p, -1, "selections and nodes differ in count");
  for (size_t i = 0; i < p.selections.size(); ++i) {
    const Selection& s = p.selections[i];
    const bool kept = step < p.kept.size() && p.kept[step] == s.node;
    if (s.node != int(i) + 1) fail("select", p, int(step), "selections are not in record order");
    if (!kept) {
      if (s.kernel != "none") fail("select", p, int(step), "a dropped node has a kernel");
      continue;
    }
    if (step >= p.steps.size() || p.steps[step].node != s.node)
      fail("select", p, int(step), "a kept node has no step");
    const Step& chosen = p.steps[step];
    const KernelRow* row = chosen.row;
    bool own = false;
    for (const KernelRow& candidate : chosen.def->kernels) own |= &candidate == row;
    if (!own || row->backend != p.limits.backend)
      fail("select", p, int(step), "its kernel is not one of this operator on this backend");
    if (const char* why = row->reject(chosen.call, p.limits))
      fail("select", p, int(step), std::string("its kernel rejects it: ") + why);
    if (s.kernel != row->kernel) fail("select", p, int(step), "the report names another kernel");
    ++step;
  }
  if (step != p.steps.size()) fail("select", p, int(step), "there are steps of no kept node");
}

}  // namespace planner
}  // namespace accel
