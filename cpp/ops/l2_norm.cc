// l2_norm: its contract, its shape rule and the kernels that implement it.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

enum { eps };

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::F32);
  require_positive(c, eps);
  return {Type{DType::F32, c.in[0].shape}};
}

static void params(const Call& c, Params& p) {
  RowsParams out = rows_params(c);
  out.eps = c.attr(eps).f;
  p.put(out);
}

extern const OpDef def_l2_norm = {
    .op = Op::l2_norm,
    .name = "l2_norm",
    .doc = "Scale each row of x to unit length: x * (1 / sqrt(sum(x^2) + eps)), in f32.",
    .operands = {{"x", "f32 [..., W]"}},
    .attrs = {{"eps", AttrType::real, "added to the sum of squares; finite and positive"}},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "l2_norm_f32", always, "lane16", "sum of squares in lane16"}},
                launch_norms, true),
};

}  // namespace accel
