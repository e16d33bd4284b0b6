// row_top_k_mask: top_k_mask with each row's own k and no bound.
#include "ops/gpu.h"
#include "ops/row_policy.h"

namespace accel {

extern const OpDef def_row_top_k_mask = {
    .op = Op::row_top_k_mask,
    .name = "row_top_k_mask",
    .doc =
        "Keep each row's first k[r] entries in the order (value descending, index ascending); "
        "others are +0. A k of 0, or of the vocabulary or more, keeps the row as it is.",
    .operands = {{"weights", "f32 [rows, vocab]"}, {"k", "u32 [rows]"}},
    .attrs = {},
    .infer = infer_policy_rows,
    .params = policy_rows_params,
    .kernels = on_gpus({{Backend::cpu, "row_top_k_mask", always, "exact",
                         "selects by value, then index, each row its own k"}},
                       launch_rows),
    .internal = true,
    .exact = true,
};

}  // namespace accel
