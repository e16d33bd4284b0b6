// sample_categorical: the entry at which the running sum of a row's weights passes draw times the
// total.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::F32);
  require_dtype(c, 1, DType::F32);
  require_elements(c, 1, rows_of(c.in[0]));
  return {Type{DType::U32, row_results(c.in[0].shape)}};
}

static void params(const Call& c, Params& p) {
  p.put(rows_params(c));
}

extern const OpDef def_sample_categorical = {
    .op = Op::sample_categorical,
    .name = "sample_categorical",
    .doc =
        "Draw one index a row, u32 of the leading shape ([1] for rank 1), with probability weight "
        "/ total.\n\n"
        "The running sum goes in blocks of 256 whose totals are carried; the result is the first "
        "index whose\n"
        "running sum is strictly greater than draw * total, or vocab - 1. Draws are clamped to [0, "
        "0.99999994],\n"
        "NaN counts as 0. Weights need not sum to 1; a zero weight is never drawn.",
    .operands = {{"weights", "f32 [..., vocab]"}, {"draws", "f32, one a row"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "sample_categorical_f32", always, "block256",
                         "running sums in blocks of 256"}},
                       launch_draws),
    .exact = true,
    .checks = {{DataRule::unit, 1}},
};

}  // namespace accel
