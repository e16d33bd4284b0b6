// gather_rows: rows of a float table by id, widened to f32; an id beyond the table gives zeros.
#include "shared/params/gather_rows.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  const In& table = c.in[0];
  if (table.dtype == DType::I8)
    refuse_dtype(c, 0, "f32, f16 or bf16; quant_gather_rows reads an i8 table with its scales");
  require_dtype_in(c, 0, {DType::F32, DType::F16, DType::BF16});
  require_dtype(c, 1, DType::U32);
  require_rank(c, 0, 2);
  std::vector<int64_t> shape = c.in[1].shape.dims();
  shape.push_back(table.shape[1]);
  return {Type{DType::F32, Shape(std::move(shape))}};
}

static void params(const Call& c, Params& p) {
  const Shape& table = c.in[0].shape;
  p.put(GatherRowsParams{uint32_t(table[0]), uint32_t(table[1]), uint32_t(c.in[1].shape.elements()),
                         0});
}

template <DType T>
static const char* other_table(const Call& c, const Limits&) {
  static const char* const reads[] = {"reads an f32 table", "reads an f16 table",
                                      "reads a bf16 table"};
  return c.in[0].dtype == T ? nullptr : reads[int(T)];
}

extern const OpDef def_gather_rows = {
    .op = Op::gather_rows,
    .name = "gather_rows",
    .doc =
        "Return table[ids] as f32, shape ids.shape + [W].\n\n"
        "f16 and bf16 widen exactly. An id that is not a row of the table gives a row of zeros.",
    .operands = {{"table", "f32, f16 or bf16 [V, W], contiguous"}, {"ids", "u32, any shape"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels = on_gpus(
        {{Backend::cpu, "gather_rows_f32", other_table<DType::F32>, "exact", "copies rows"},
         {Backend::cpu, "gather_rows_f16", other_table<DType::F16>, "exact", "widens rows"},
         {Backend::cpu, "gather_rows_bf16", other_table<DType::BF16>, "exact", "widens rows"}},
        launch_elements),
    .exact = true,
    .checks = {{DataRule::below, 1, [](const Call& c) { return c.in[0].shape[0]; }}},
};

}  // namespace accel
