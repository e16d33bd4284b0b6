// penalty_clear: zeroes the token counts at the start of a step.
#include "ops/penalty_rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::U32);
  return {};
}

static void params(const Call& c, Params& p) {
  p.put(PenaltyParams{uint32_t(c.in[0].shape.elements()), 0});
}

extern const OpDef def_penalty_clear = {
    .op = Op::penalty_clear,
    .name = "penalty_clear",
    .doc = "Zero the token counts.",
    .operands = {{"counts", "u32 state [vocab]", SlotKind::state}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "penalty_clear", always, "exact", "writes zeros"}}, launch_words),
    .writes = 0,
    .internal = true,
    .exact = true,
};

}  // namespace accel
