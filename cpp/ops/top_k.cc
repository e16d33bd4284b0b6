// top_k: the first k entries of a row in the order (value descending, index ascending), and where
// they stand.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

enum { k };

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::F32);
  const int64_t width = width_of(c.in[0]), keep = c.attr(k).i;
  if (keep < 1 || keep > width)
    refuse_attr(c, k, "1 or more and at most the last axis, " + std::to_string(width));
  std::vector<int64_t> shape = c.in[0].shape.dims();
  shape.back() = keep;
  return {Type{DType::F32, Shape(shape)}, Type{DType::U32, Shape(shape)}};
}

static void params(const Call& c, Params& p) {
  RowsParams out = rows_params(c);
  out.k = uint32_t(c.attr(k).i);
  p.put(out);
}

extern const OpDef def_top_k = {
    .op = Op::top_k,
    .name = "top_k",
    .doc =
        "Return each row's first k entries in the order (value descending, index ascending), and "
        "their indices.\n\n"
        "-0 equals +0 and NaN comes after -inf. Both results are [..., k], f32 and u32.",
    .operands = {{"x", "f32 [..., W]"}},
    .attrs = {{"k", AttrType::integer, "how many entries, 1 to W", true, true}},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "top_k_f32", always, "exact", "selects by value, then index"}},
                launch_rows),
    .exact = true,
    .returns = "tuple[Tensor, Tensor]",
};

}  // namespace accel
