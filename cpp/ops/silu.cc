// silu: its contract, its shape rule and the kernels that implement it.
#include "ops/elementwise.h"
#include "ops/gpu.h"

namespace accel {

extern const OpDef def_silu = {
    .op = Op::silu,
    .name = "silu",
    .doc = "Return x / (1 + exp(-x)).\n\nLarge negative values give -0; -inf gives NaN.",
    .operands = {{"x", "f32 or f16"}},
    .attrs = {},
    .infer = infer_unary,
    .params = elementwise_params,
    .kernels = on_gpus({{Backend::cpu, "silu_f32", not_f32, "exact", "x / (1 + exp(-x)) in f32"},
                        {Backend::cpu, "silu_f16", not_f16, "exact",
                         "x / (1 + exp(-x)) in f32, rounded once to f16"}},
                       launch_elements),
    .packs = true,
    .exact = false,
};

}  // namespace accel
