// swiglu: its contract, its shape rule and the kernels that implement it.
#include "ops/elementwise.h"
#include "ops/gpu.h"

namespace accel {

// Equal shapes: no broadcasting, so that a wrong width never passes.
static std::vector<Type> infer_swiglu(const Call& c) {
  const Shape& gate = c.in[0].shape;
  if (c.in[1].dtype == c.in[0].dtype && !(c.in[1].shape == gate))
    refuse_shape(c, 1, gate.to_string() + ", as gate is");
  return infer_binary(c);
}

extern const OpDef def_swiglu = {
    .op = Op::swiglu,
    .name = "swiglu",
    .doc = "Return gate / (1 + exp(-gate)) * value, elementwise over equal shapes.",
    .operands = {{"gate", "f32 or f16"}, {"value", "dtype and shape of gate"}},
    .attrs = {},
    .infer = infer_swiglu,
    .params = elementwise_params,
    .kernels = on_gpus({{Backend::cpu, "swiglu_f32", not_f32, "exact", "silu(gate) * value in f32"},
                        {Backend::cpu, "swiglu_f16", not_f16, "exact",
                         "silu(gate) * value in f32, rounded once to f16"}},
                       launch_elements),
    .packs = true,
    .exact = false,
};

}  // namespace accel
