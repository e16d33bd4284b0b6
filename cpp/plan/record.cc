// record: the command list, one command a step, and the kernels that it names.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

static std::vector<int> scalars_of(const Call& call) {
  std::vector<int> scalars;
  for (size_t i = 0; i < call.def->attrs.size(); ++i) {
    const AttrType type = call.def->attrs[i].type;
    const bool scalar = type == AttrType::scalar_f32 || type == AttrType::scalar_u32;
    if (scalar && call.attrs[i].set) scalars.push_back(call.attrs[i].scalar);
  }
  return scalars;
}

// A group is a dispatch of its own, and so is a chain. Without fusing, and on a GPU, every command
// is one.
static bool starts_dispatch(const PlanData& p, size_t s) {
  if (s == 0 || !p.limits.fuse || p.limits.backend != Backend::cpu) return true;
  const Step &step = p.steps[s], &before = p.steps[s - 1];
  if (step.group >= 0 || before.group >= 0) return step.group != before.group;
  if (step.chain >= 0 || before.chain >= 0) return step.chain != before.chain;
  return step.barrier_before;
}

static void name_pipelines(PlanData& p, const Progress& progress) {
  p.pipelines.clear();
  for (const Step& step : p.steps)
    if (std::find(p.pipelines.begin(), p.pipelines.end(), step.row) == p.pipelines.end())
      p.pipelines.push_back(step.row);
  const int total = int(p.pipelines.size());
  for (int i = 0; progress && i < total; ++i) progress("pipelines", i + 1, total);
}

// How a command is launched on a GPU. Scratch of what may run at once lies side by side; behind a
// barrier it is used again.
static void add_launches(PlanData& p, const Step& step, Command& c, int64_t& scratch_end) {
  if (!step.row->launches) return;
  step.row->launches(step.call, *step.row, c.launches);
  if (c.barrier_before) scratch_end = 0;
  c.scratch_offset = scratch_end;
  const int64_t unit = p.limits.alignment;
  scratch_end += (c.launches.scratch + unit - 1) / unit * unit;
  p.scratch_bytes = std::max(p.scratch_bytes, scratch_end);
}

void record(PlanData& p, const Progress& progress) {
  name_pipelines(p, progress);
  p.commands.clear();
  p.scratch_bytes = 0;
  int64_t scratch_end = 0;
  for (size_t s = 0; s < p.steps.size(); ++s) {
    const Step& step = p.steps[s];
    Command c;
    c.row = step.row;
    c.operands = step.places;
    Params params;
    step.def->params(step.call, params);
    c.params = std::move(params.words);
    c.scalars = scalars_of(step.call);
    c.barrier_before = step.barrier_before;
    c.step = int(s);
    c.dispatch = s == 0 ? 0 : p.commands.back().dispatch + starts_dispatch(p, s);
    c.follows = p.limits.backend == Backend::cpu && follows(step);
    c.chained = step.chain >= 0;
    add_launches(p, step, c, scratch_end);
    p.commands.push_back(std::move(c));
    if (progress) progress("record", int(s) + 1, int(p.steps.size()));
  }
}

void verify_record(const PlanData& p) {
  if (p.commands.size() != p.steps.size())
    fail("record", p, -1, "commands and steps differ in count");
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const Step& step = p.steps[size_t(s)];
    const Command& c = p.commands[size_t(s)];
    if (c.step != s || c.row != step.row || c.barrier_before != step.barrier_before)
      fail("record", p, s, "a command is not its step's");
    // What starts together is free of conflicts, or a group, or a chain.
    if (s > 0 && c.dispatch == p.commands[size_t(s) - 1].dispatch && step.barrier_before &&
        !c.follows && !c.chained)
      fail("record", p, s, "a barrier stands inside a dispatch");
    if (c.chained != (step.chain >= 0) ||
        (c.chained && c.dispatch != p.commands[size_t(step.chain)].dispatch))
      fail("record", p, s, "a chain is not one dispatch");
    if (c.operands.size() != step.call.in.size() + step.call.results.size())
      fail("record", p, s, "a command has another number of operands than its call");
    for (const Place& place : c.operands)
      if (place.bytes > p.limits.max_bytes) fail("record", p, s, "an operand exceeds the device");
    if ((p.limits.backend == Backend::cpu) != c.launches.list.empty())
      fail("record", p, s, "a command of a GPU has no launch, or one of the CPU has");
    for (const Launch& launch : c.launches.list)
      if (launch.threads % 32 || launch.threads < 32 || launch.threads > 1024 ||
          !launch.groups[0] || !launch.groups[1] || !launch.groups[2])
        fail("record", p, s, "a launch has no groups, or no whole SIMD groups");
    for (int scalar : c.scalars)
      if (scalar < 0 || scalar >= int(p.graph.scalars.size()))
        fail("record", p, s, "a command names a scalar that is not declared");
    if (std::find(p.pipelines.begin(), p.pipelines.end(), c.row) == p.pipelines.end())
      fail("record", p, s, "its kernel is not among the pipelines");
  }
}

}  // namespace accel::planner
