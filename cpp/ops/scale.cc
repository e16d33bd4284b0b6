// scale: its contract, its shape rule and the kernels that implement it.
#include "ops/elementwise.h"
#include "ops/gpu.h"

namespace accel {

extern const OpDef def_scale = {
    .op = Op::scale,
    .name = "scale",
    .doc = "Return x times a scalar that is given at each submission.",
    .operands = {{"x", "f32 or f16"}},
    .attrs = {{"scalar_name", AttrType::scalar_f32, "name of a declared f32 scalar", true, true}},
    .infer = infer_unary,
    .params = elementwise_params,
    .kernels = on_gpus(
        {{Backend::cpu, "scale_f32", not_f32, "exact", "x * scalar in f32"},
         {Backend::cpu, "scale_f16", not_f16, "exact", "x * scalar in f32, rounded once to f16"}},
        launch_elements),
    .packs = true,
    .exact = true,
};

}  // namespace accel
