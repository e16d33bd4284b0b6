// softplus: its contract, its shape rule and the kernels that implement it.
#include "ops/elementwise.h"
#include "ops/gpu.h"

namespace accel {

extern const OpDef def_softplus = {
    .op = Op::softplus,
    .name = "softplus",
    .doc =
        "Return max(x, 0) + log1p(exp(-abs(x))).\n\nNeither end overflows; f16 is evaluated in f32 "
        "and rounded once.",
    .operands = {{"x", "f32 or f16"}},
    .attrs = {},
    .infer = infer_unary,
    .params = elementwise_params,
    .kernels = on_gpus(
        {{Backend::cpu, "softplus_f32", not_f32, "exact", "max(x, 0) + log1p(exp(-abs(x))) in f32"},
         {Backend::cpu, "softplus_f16", not_f16, "exact",
          "max(x, 0) + log1p(exp(-abs(x))) in f32, rounded once to f16"}},
        launch_elements),
    .packs = true,
    .exact = false,
};

}  // namespace accel
