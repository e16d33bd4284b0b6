// softmax: over the last axis, maximum subtracted first.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

enum { axis };

static std::vector<Type> infer(const Call& c) {
  const In& x = c.in[0];
  require_dtype(c, 0, DType::F32);
  const int64_t rank = x.shape.rank(), a = c.attr(axis).i;
  if (a != -1 && a != rank - 1)
    refuse_attr(c, axis, "the last axis, " + std::to_string(rank - 1) + " or -1");
  return {Type{x.dtype, x.shape}};
}

static void params(const Call& c, Params& p) {
  p.put(rows_params(c));
}

extern const OpDef def_softmax = {
    .op = Op::softmax,
    .name = "softmax",
    .doc =
        "Return exp(x - max) / sum(exp(x - max)) over the last axis, in f32.\n\n"
        "A row of only -inf, or one that holds +inf or NaN, gives NaN.",
    .operands = {{"x", "f32 [..., W]"}},
    .attrs = {{"axis", AttrType::integer, "the last axis; no other is accepted", false, false,
               "-1"}},
    .infer = infer,
    .params = params,
    .kernels =
        with_gpu_row(on_gpus({{Backend::cpu, "softmax_f32", always, "lane16", "sum in lane16"}},
                             launch_rows16, true),
                     {Backend::metal, "softmax_long_f32", too_short, "lane256", "sum in lane256"},
                     launch_softmax),
};

}  // namespace accel
