// argmax: the lowest index of a row's largest value.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::F32);
  return {Type{DType::U32, row_results(c.in[0].shape)}};
}

static void params(const Call& c, Params& p) {
  p.put(rows_params(c));
}

extern const OpDef def_argmax = {
    .op = Op::argmax,
    .name = "argmax",
    .doc =
        "Return the index of each row's largest value, u32 of the leading shape ([1] for rank "
        "1).\n\n"
        "The scan starts from value -3.4e38 and index 0 and replaces on strictly greater: the "
        "lowest index\n"
        "among equals; NaN and values <= -3.4e38 never win; a row of NaN gives 0.",
    .operands = {{"logits", "f32 [..., vocab]"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "argmax_f32", always, "exact", "scans each row"}}, launch_argmax),
    .exact = true,
};

}  // namespace accel
