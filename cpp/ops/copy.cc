// copy: moves a value's bytes; added by the planner for outputs that share a value.
#include "shared/params/copy.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  return {Type{c.in[0].dtype, c.in[0].shape}};
}

static void params(const Call& c, Params& p) {
  const uint64_t bytes = uint64_t(c.results[0].bytes());
  p.put(CopyParams{uint32_t(bytes), uint32_t(bytes >> 32)});
}

static void launch_copy(const Call& c, const KernelRow& row, Launches& out) {
  launch_elements(c, row, out);
  out.list[0].function = "copy_" + std::to_string(size_of(c.in[0].dtype));
}

extern const OpDef def_copy = {
    .op = Op::copy,
    .name = "copy",
    .doc = "Copy a value.",
    .operands = {{"x", "any dtype, contiguous"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "copy_bytes", always, "exact", "moves bytes"}}, launch_copy),
    .internal = true,
    .exact = true,
};

}  // namespace accel
