// penalty_count: counts the tokens of a history.
#include "ops/penalty_rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::U32);
  require_dtype(c, 1, DType::U32);
  return {};
}

static void params(const Call& c, Params& p) {
  p.put(PenaltyParams{uint32_t(c.in[0].shape.elements()), uint32_t(c.in[1].shape.elements())});
}

static void launch_history(const Call& c, const KernelRow& row, Launches& out) {
  launch_own(row, out, groups_of(c.in[1].shape.elements(), kGroupThreads));
}

extern const OpDef def_penalty_count = {
    .op = Op::penalty_count,
    .name = "penalty_count",
    .doc = "Add one to counts[history[i]] for i < n; an id beyond the vocabulary is skipped.",
    .operands = {{"counts", "u32 state [vocab]", SlotKind::state},
                 {"history", "u32 state", SlotKind::state}},
    .attrs = {{"n_name", AttrType::scalar_u32,
               "name of the scalar that gives the history's length"}},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "penalty_count", always, "exact", "integer sums"}}, launch_history),
    .writes = 0,
    .internal = true,
    .exact = true,
};

}  // namespace accel
