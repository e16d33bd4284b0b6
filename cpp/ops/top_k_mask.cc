// top_k_mask: keeps the first k entries of a row in the order (value descending, index ascending).
#include "ops/gpu.h"
#include "ops/row_rules.h"
#include "ops/sampling_limits.h"

namespace accel {

enum { k, exact };

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::F32);
  const int64_t vocab = width_of(c.in[0]), keep = c.attr(k).i;
  if (keep <= 0) refuse_attr(c, k, "positive; leave the operator out to keep all");
  if (keep > vocab) refuse_attr(c, k, "at most the vocabulary, " + std::to_string(vocab));
  if (keep > kTopMaxRounds && !c.attr(exact).b)
    refuse_attr(c, k, "at most 128; exact=True lifts the bound");
  return {Type{DType::F32, c.in[0].shape}};
}

static void params(const Call& c, Params& p) {
  RowsParams out = rows_params(c);
  out.k = uint32_t(c.attr(k).i);
  out.exact = c.attr(exact).b;
  p.put(out);
}

extern const OpDef def_top_k_mask = {
    .op = Op::top_k_mask,
    .name = "top_k_mask",
    .doc =
        "Keep each row's first k entries in the order (value descending, index ascending); others "
        "are +0.\n\n"
        "-0 equals +0 and NaN comes after -inf. k is at most 128 unless exact=True.",
    .operands = {{"weights", "f32 [..., vocab]"}},
    .attrs = {{"k", AttrType::integer, "how many entries are kept", true, true},
              {"exact", AttrType::flag, "lift the bound of 128", false, false, "False"}},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "top_k_mask_f32", always, "exact", "selects by value, then index"}},
                launch_rows),
    .exact = true,
};

}  // namespace accel
