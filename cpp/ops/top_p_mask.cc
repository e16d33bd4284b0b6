// top_p_mask: keeps the nucleus of a row, the crossing entry included.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

enum { p, exact };

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::F32);
  const float keep = c.attr(p).f;
  if (!(keep > 0) || keep > 1) refuse_attr(c, p, "above 0 and at most 1");
  return {Type{DType::F32, c.in[0].shape}};
}

static void params(const Call& c, Params& out) {
  RowsParams rows = rows_params(c);
  rows.p = c.attr(p).f;
  rows.exact = c.attr(exact).b;
  out.put(rows);
}

extern const OpDef def_top_p_mask = {
    .op = Op::top_p_mask,
    .name = "top_p_mask",
    .doc =
        "Keep each row's largest entries until their sum reaches p times the row's total; others "
        "are +0.\n\n"
        "Entries are taken in the order (value descending, index ascending) while the kept sum is "
        "below the\n"
        "target; the crossing entry stays. At most 128 entries unless exact=True. A zero or NaN "
        "total gives\n"
        "a row of zeros.",
    .operands = {{"weights", "f32 [..., vocab]"}},
    .attrs = {{"p", AttrType::real, "share of the total that is kept, in (0, 1]", true, true},
              {"exact", AttrType::flag, "lift the bound of 128 entries", false, false, "False"}},
    .infer = infer,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "top_p_mask_f32", always, "lane128",
                         "total in 128 lanes, kept sum in order"}},
                       launch_rows),
    .exact = true,
    .source = "Holtzman et al., The Curious Case of Neural Text Degeneration, 2020",
};

}  // namespace accel
