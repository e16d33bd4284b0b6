// row_top_p_mask: top_p_mask with each row's own p and no bound.
#include "ops/gpu.h"
#include "ops/row_policy.h"

namespace accel {

extern const OpDef def_row_top_p_mask = {
    .op = Op::row_top_p_mask,
    .name = "row_top_p_mask",
    .doc =
        "Keep each row's largest entries until their sum reaches p[r] times the row's total, "
        "the crossing entry included; others are +0. A p outside (0, 1) keeps the row as it "
        "is.",
    .operands = {{"weights", "f32 [rows, vocab]"}, {"p", "f32 [rows]"}},
    .attrs = {},
    .infer = infer_policy_rows,
    .params = policy_rows_params,
    .kernels = on_gpus({{Backend::cpu, "row_top_p_mask", always, "lane128",
                         "total in 128 lanes, kept sum in order, each row its own p"}},
                       launch_rows),
    .internal = true,
    .exact = true,
};

}  // namespace accel
