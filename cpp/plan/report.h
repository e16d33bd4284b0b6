// Reports of a plan for other programs: Graphviz, a map of the transients' memory. The same plan
// gives the same text.
#pragma once
#include <string>

#include "plan/plan.h"

namespace accel {

// Steps as boxes, ports as ellipses. Solid edges carry data, dashed ones mere order; a dotted one
// joins the last user of arena bytes to the step that takes them over. A step behind a barrier has
// a double border.
std::string dot_of(const PlanData& plan);

// Each transient's first and last user, offset and size.
std::string memory_map_json(const PlanData& plan);
std::string memory_map_svg(const PlanData& plan);

// ---------------------------------------------------------------- texts
// Quoted, with what JSON needs escaped.
std::string json_text(const std::string& text);
// "12 rms_norm" for a step; a copy names the node whose value it moves.
std::string step_name(const PlanData& plan, int step);

}  // namespace accel
