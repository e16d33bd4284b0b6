// sigmoid: its contract, its shape rule and the kernels that implement it.
#include "ops/elementwise.h"
#include "ops/gpu.h"

namespace accel {

extern const OpDef def_sigmoid = {
    .op = Op::sigmoid,
    .name = "sigmoid",
    .doc = "Return 1 / (1 + exp(-x)).\n\nf16 is evaluated in f32 and rounded once.",
    .operands = {{"x", "f32 or f16"}},
    .attrs = {},
    .infer = infer_unary,
    .params = elementwise_params,
    .kernels = on_gpus({{Backend::cpu, "sigmoid_f32", not_f32, "exact", "1 / (1 + exp(-x)) in f32"},
                        {Backend::cpu, "sigmoid_f16", not_f16, "exact",
                         "1 / (1 + exp(-x)) in f32, rounded once to f16"}},
                       launch_elements),
    .packs = true,
    .exact = false,
};

}  // namespace accel
