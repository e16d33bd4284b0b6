// take: one element of each row, by its column; a column beyond the row gives zero.
#include "ops/gpu.h"
#include "ops/row_rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  const In& x = c.in[0];
  require_dtype_in(c, 0, {DType::F32, DType::F16, DType::U32});
  require_dtype(c, 1, DType::U32);
  require_rank(c, 0, 2);
  require_shape(c, 1, {x.shape[0]});
  return {Type{x.dtype, {x.shape[0]}}};
}

static void params(const Call& c, Params& p) {
  p.put(rows_params(c));
}

static const char* not_4(const Call& c, const Limits&) {
  return size_of(c.in[0].dtype) == 4 ? nullptr : "moves 4-byte elements";
}
static const char* not_2(const Call& c, const Limits&) {
  return size_of(c.in[0].dtype) == 2 ? nullptr : "moves 2-byte elements";
}

extern const OpDef def_take = {
    .op = Op::take,
    .name = "take",
    .doc =
        "Return x[r, ids[r]], one element a row, in the dtype of x.\n\n"
        "An id that is not a column of x gives 0.",
    .operands = {{"x", "f32, f16 or u32 [rows, W]"}, {"ids", "u32 [rows]"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "take_4", not_4, "exact", "moves 4-byte elements"},
                        {Backend::cpu, "take_2", not_2, "exact", "moves 2-byte elements"}},
                       launch_elements),
    .exact = true,
    .checks = {{DataRule::below, 1, [](const Call& c) { return c.in[0].shape[1]; }}},
};

}  // namespace accel
