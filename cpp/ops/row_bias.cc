// row_bias: adds a few values to the logits of each row, by token.
#include "ops/gpu.h"
#include "ops/row_policy.h"

namespace accel {

static void params(const Call& c, Params& p) {
  RowPolicyParams out = policy_params(c);
  out.slots = unsigned(c.in[1].shape[1]);
  p.put(out);
}

extern const OpDef def_row_bias = {
    .op = Op::row_bias,
    .name = "row_bias",
    .doc =
        "Add values[r, s] to logits[r, ids[r, s]] in slot order; an id beyond the vocabulary is "
        "an empty slot.",
    .operands = {{"logits", "f32 [rows, vocab]"},
                 {"ids", "u32 [rows, slots]"},
                 {"values", "f32 [rows, slots]"}},
    .attrs = {},
    .infer = infer_policy_rows,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "row_bias", always, "exact", "a copy, then one sum a slot"}},
                       launch_elements),
    .internal = true,
    .exact = true,
};

}  // namespace accel
