// row_penalty_apply: each row's own penalties on the logits of its counted tokens.
#include "ops/gpu.h"
#include "ops/row_policy.h"

namespace accel {

extern const OpDef def_row_penalty_apply = {
    .op = Op::row_penalty_apply,
    .name = "row_penalty_apply",
    .doc =
        "Penalise the logits of tokens whose count is not zero; the others are copied bit for "
        "bit.\n\n"
        "l / repetition if l > 0, l * repetition if l <= 0 (skipped when repetition is not finite "
        "or <= 0), then (l - presence) - frequency * count; a presence or frequency that is not "
        "finite counts as 0.",
    .operands = {{"logits", "f32 [rows, vocab]"},
                 {"counts", "u32 state [rows, vocab]", SlotKind::state},
                 {"repetition", "f32 [rows]"},
                 {"presence", "f32 [rows]"},
                 {"frequency", "f32 [rows]"}},
    .attrs = {},
    .infer = infer_policy_rows,
    .params = policy_rows_params,
    .kernels =
        on_gpus({{Backend::cpu, "row_penalty_apply", always, "exact", "one pass over the rows"}},
                launch_elements),
    .internal = true,
};

}  // namespace accel
