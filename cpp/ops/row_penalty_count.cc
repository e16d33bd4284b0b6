// row_penalty_count: counts the tokens of each row's history.
#include "ops/gpu.h"
#include "ops/row_policy.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::U32);
  require_dtype(c, 1, DType::U32);
  return {};
}

static void params(const Call& c, Params& p) {
  RowPolicyParams out = policy_params(c);
  out.history = unsigned(c.in[1].shape.elements() / c.in[0].shape[0]);
  p.put(out);
}

static void launch_history(const Call& c, const KernelRow& row, Launches& out) {
  launch_own(row, out, groups_of(c.in[1].shape.elements(), kGroupThreads * kThreadElements));
}

extern const OpDef def_row_penalty_count = {
    .op = Op::row_penalty_count,
    .name = "row_penalty_count",
    .doc =
        "Add one to counts[r, history[r, i]] for i < filled[r], clamped to the history; an id "
        "beyond the vocabulary is skipped.",
    .operands = {{"counts", "u32 state [rows, vocab]", SlotKind::state},
                 {"history", "u32 state [rows, entries] or flat", SlotKind::state},
                 {"filled", "u32 [rows]"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "row_penalty_count", always, "exact", "integer sums"}},
                       launch_history),
    .writes = 0,
    .internal = true,
    .exact = true,
    .checks = {{DataRule::at_most, 2,
                [](const Call& c) { return c.in[1].shape.elements() / c.in[0].shape[0]; }}},
};

}  // namespace accel
