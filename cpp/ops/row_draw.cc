// row_draw: sample_categorical, except that a greedy row takes the token it is given.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  require_rank(c, 0, 2);
  return {Type{DType::U32, row_results(c.in[0].shape)}};
}

static void params(const Call& c, Params& p) {
  p.put(rows_params(c));
}

extern const OpDef def_row_draw = {
    .op = Op::row_draw,
    .name = "row_draw",
    .doc =
        "Draw one index a row as sample_categorical does; a row whose factor is not finite and "
        "above 0 takes best[r] and ignores its draw.",
    .operands = {{"weights", "f32 [rows, vocab]"},
                 {"draws", "f32, one a row"},
                 {"factor", "f32 [rows]"},
                 {"best", "u32 [rows]"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "row_draw", always, "block256", "running sums in blocks of 256"}},
                launch_draws),
    .internal = true,
    .exact = true,
    .checks = {{.kind = DataRule::unit, .slot = 1, .factors = 2}},
};

}  // namespace accel
