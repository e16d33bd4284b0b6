// row_scale: each row times its own factor.
#include "ops/gpu.h"
#include "ops/row_policy.h"

namespace accel {

extern const OpDef def_row_scale = {
    .op = Op::row_scale,
    .name = "row_scale",
    .doc = "Return x[r, c] * factor[r]; a factor that is not finite and above 0 counts as 1.",
    .operands = {{"x", "f32 [rows, vocab]"}, {"factor", "f32 [rows]"}},
    .attrs = {},
    .infer = infer_policy_rows,
    .params = policy_rows_params,
    .kernels = on_gpus({{Backend::cpu, "row_scale", always, "exact", "x * factor in f32"}},
                       launch_elements),
    .internal = true,
    .exact = true,
};

}  // namespace accel
