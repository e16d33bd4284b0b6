// barriers: synthesised from the bytes that steps touch, handovers of arena bytes included.
#include "plan/passes.h"

namespace accel::planner {

void barriers(PlanData& p) {
  std::vector<int> groups;
  for (const Step& step : p.steps) groups.push_back(step.group);
  const std::vector<bool> needed = place_barriers(memory_touches(p), groups);
  for (size_t s = 0; s < p.steps.size(); ++s) p.steps[s].barrier_before = needed[s];
}

void barriers_everywhere(PlanData& p) {
  for (Step& step : p.steps) step.barrier_before = true;
}

// Every pair: a conflict needs a barrier somewhere behind the first and up to the second.
void verify_barriers(const PlanData& p) {
  const std::vector<Touches> steps = memory_touches(p);
  if (!steps.empty() && !p.steps[0].barrier_before)
    fail("barriers", p, 0, "the head has no barrier");
  size_t fenced = 0;  // the last step with a barrier
  for (size_t t = 0; t < steps.size(); ++t) {
    if (p.steps[t].barrier_before) fenced = t;
    for (size_t s = fenced; s < t; ++s)
      for (const Touch& a : steps[s])
        for (const Touch& b : steps[t])
          if (conflict(a, b))
            fail("barriers", p, int(t),
                 "no barrier behind step " + std::to_string(s) + ", which touches the same bytes");
  }
}

}  // namespace accel::planner
