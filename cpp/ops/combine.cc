// combine: the weighted sum of each token's expert rows, read back through route's inverse.
#include "ops/gpu.h"
#include "ops/rules.h"
#include "shared/params/route.h"

namespace accel {

enum { y, inverse, weights };

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, y, DType::F32);
  require_dtype(c, inverse, DType::U32);
  require_dtype(c, weights, DType::F32);
  require_rank(c, y, 2);
  require_rank(c, weights, 2);
  const Shape &rows = c.in[y].shape, &w = c.in[weights].shape;
  if (rows[0] != w.elements())
    refuse_shape(
        c, y,
        "[" + std::to_string(w.elements()) + " N], one row an entry of weights " + w.to_string());
  require_elements(c, inverse, w.elements());
  return {Type{DType::F32, {w[0], rows[1]}}};
}

static void params(const Call& c, Params& p) {
  const Shape& w = c.in[weights].shape;
  p.put(CombineParams{uint32_t(w[0]), uint32_t(w[1]), uint32_t(c.in[y].shape[1])});
}

extern const OpDef def_combine = {
    .op = Op::combine,
    .name = "combine",
    .doc =
        "Sum each token's rows of y by weight: out[t] is the sum over j of weights[t, j] * "
        "y[inverse[t * k + j]].\n\n"
        "The sum starts from the product for j = 0 and goes on in order of j, each product and "
        "sum rounded. An\n"
        "entry of inverse that is no row of y stands for a row of zeros. The result is f32 [T, N].",
    .operands = {{"y", "f32 [T * k, N]: rows in the order of route"},
                 {"inverse", "u32 [T * k]: the place of each slot, from route"},
                 {"weights", "f32 [T, k]"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "combine", always, "exact", "products and sums in order of j"}},
                launch_elements),
    .exact = true,
    .checks = {{DataRule::below, inverse, [](const Call& c) { return c.in[y].shape[0]; }}},
};

}  // namespace accel
