// One launch for a run of commands, of the bits that their own launches give.
#pragma once
#include <utility>
#include <vector>

#include "ops/opdef.h"

namespace accel {

struct CombinedLaunch {
  Launch launch;  // launch.operands is left empty: places are 0.. in the order of `operands`
  Params params;
  // What is bound at each place: an operand of a call, input slots and then results. No call: no
  // operand is bound there.
  std::vector<std::pair<const Call*, int>> operands;
};

}  // namespace accel
