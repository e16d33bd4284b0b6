// log_softmax: over the last axis, maximum subtracted first.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::F32);
  return {Type{DType::F32, c.in[0].shape}};
}

static void params(const Call& c, Params& p) {
  p.put(rows_params(c));
}

extern const OpDef def_log_softmax = {
    .op = Op::log_softmax,
    .name = "log_softmax",
    .doc =
        "Return (x - max) - log(sum(exp(x - max))) over the last axis, in f32.\n\n"
        "A row of only -inf, or one that holds +inf or NaN, gives NaN.",
    .operands = {{"x", "f32 [..., W]"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels = with_gpu_row(
        on_gpus({{Backend::cpu, "log_softmax_f32", always, "lane16", "sum in lane16"}},
                launch_rows16, true),
        {Backend::metal, "log_softmax_long_f32", too_short, "lane256", "sum in lane256"},
        launch_softmax),
};

}  // namespace accel
