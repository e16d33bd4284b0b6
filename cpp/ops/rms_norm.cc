// rms_norm: its contract, its shape rule and the kernels that implement it.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

enum { eps };

static std::vector<Type> infer(const Call& c) {
  const In& x = c.in[0];
  require_dtype_in(c, 0, {DType::F32, DType::F16});
  require_type(c, 1, DType::F32, {x.shape.back()});
  require_positive(c, eps);
  return {Type{x.dtype, x.shape}};
}

static void params(const Call& c, Params& p) {
  RowsParams out = rows_params(c);
  out.eps = c.attr(eps).f;
  p.put(out);
}

extern const OpDef def_rms_norm = {
    .op = Op::rms_norm,
    .name = "rms_norm",
    .doc =
        "Scale each row of x to unit root-mean-square, then by gain.\n\n"
        "x * (1 / sqrt(sum(x^2) / W + eps)) * gain, left to right in f32; f16 rounds once at the "
        "store.",
    .operands = {{"x", "f32 or f16 [..., W]"}, {"gain", "f32 [W]"}},
    .attrs = {{"eps", AttrType::real, "added to the mean square; finite and positive"}},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "rms_norm_f32", rows_not_f32, "lane16", "sum of squares in lane16"},
                 {Backend::cpu, "rms_norm_f16", rows_not_f16, "lane16",
                  "sum of squares in lane16, rounded once to f16"}},
                launch_norms, true),
    .source = "Zhang and Sennrich, Root Mean Square Layer Normalization, 2019",
};

}  // namespace accel
