// quant_gather_rows: rows of an int8 table in blocks of 32, dequantised to f32.
#include "ops/gpu.h"
#include "ops/rules.h"
#include "shared/params/gather_rows.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  const Shape& table = c.in[0].shape;
  require_dtype(c, 0, DType::I8);
  require_dtype(c, 1, DType::F16);
  require_dtype(c, 2, DType::U32);
  require_rank(c, 0, 2);
  require_scales(c, 1, (table.elements() - 1) / 32 + 1);
  std::vector<int64_t> shape = c.in[2].shape.dims();
  shape.push_back(table[1]);
  return {Type{DType::F32, Shape(std::move(shape))}};
}

static void params(const Call& c, Params& p) {
  const Shape& table = c.in[0].shape;
  p.put(GatherRowsParams{uint32_t(table[0]), uint32_t(table[1]), uint32_t(c.in[2].shape.elements()),
                         0});
}

extern const OpDef def_quant_gather_rows = {
    .op = Op::quant_gather_rows,
    .name = "quant_gather_rows",
    .doc =
        "Return the rows of an int8 table as f32, shape ids.shape + [W].\n\n"
        "Value (id, c) is quants[id, c] * scales[(id * W + c) / 32]. An id that is not a row gives "
        "zeros.",
    .operands = {{"table", "Quantized: quants i8 [V, W], scales f16, one a block of 32",
                  SlotKind::quantized},
                 {"ids", "u32, any shape"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "quant_gather_rows", always, "exact", "one product a value"}},
                launch_elements),
    .exact = true,
    .checks = {{DataRule::below, 2, [](const Call& c) { return c.in[0].shape[0]; }}},
};

}  // namespace accel
