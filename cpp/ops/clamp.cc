// clamp: its contract, its shape rule and the kernels that implement it.
#include <cmath>

#include "ops/elementwise.h"
#include "ops/gpu.h"
#include "shared/params/clamp.h"

namespace accel {

enum { low, high };

static std::vector<Type> infer(const Call& c) {
  std::vector<Type> result = infer_unary(c);
  if (std::isnan(c.attr(low).f)) refuse_attr(c, low, "a number");
  if (std::isnan(c.attr(high).f)) refuse_attr(c, high, "a number");
  if (c.attr(low).f > c.attr(high).f) refuse_attr(c, low, "at most high, " + attr_text(c, high));
  return result;
}

static void params(const Call& c, Params& p) {
  const Shape& result = c.results[0].shape;
  p.put(ClampParams{uint32_t(result.elements()), uint32_t(run_of(result, c.in[0]).block),
                    c.attr(low).f, c.attr(high).f});
}

extern const OpDef def_clamp = {
    .op = Op::clamp,
    .name = "clamp",
    .doc =
        "Return low where x < low, high where x > high, else x.\n\n"
        "NaN stays, and so does a zero that equals a bound. Bounds may be infinite; f16 compares "
        "in "
        "f32 and rounds once.",
    .operands = {{"x", "f32 or f16"}},
    .attrs = {{"low", AttrType::real, "the least value, at most high"},
              {"high", AttrType::real, "the largest value"}},
    .infer = infer,
    .params = params,
    .kernels = on_gpus(
        {{Backend::cpu, "clamp_f32", not_f32, "exact", "compares in f32"},
         {Backend::cpu, "clamp_f16", not_f16, "exact", "compares in f32, rounded once to f16"}},
        launch_elements),
    .packs = true,
    .exact = true,
};

}  // namespace accel
