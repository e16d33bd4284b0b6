// add: its contract, its shape rule and the kernels that implement it.
#include "ops/elementwise.h"
#include "ops/gpu.h"

namespace accel {

extern const OpDef def_add = {
    .op = Op::add,
    .name = "add",
    .doc =
        "Return x + y, broadcast right-aligned.\n\nBoth of one dtype, which is the result's; f16 "
        "is evaluated in f32 and rounded once.",
    .operands = {{"x", "f32 or f16"}, {"y", "the dtype of x"}},
    .attrs = {},
    .infer = infer_binary,
    .params = elementwise_params,
    .kernels =
        on_gpus({{Backend::cpu, "add_f32", not_f32, "exact", "x + y in f32"},
                 {Backend::cpu, "add_f16", not_f16, "exact", "x + y in f32, rounded once to f16"}},
                launch_elements),
    .packs = true,
    .exact = true,
};

}  // namespace accel
