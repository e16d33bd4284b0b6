// route: a stable sort of (token, choice) slots by expert, for the grouped products.
#include "shared/params/route.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

enum { experts };

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::U32);
  require_rank(c, 0, 2);
  const int64_t n = c.attr(experts).i;
  if (n < 1 || n > 0xffffffff) refuse_attr(c, experts, "positive and below 2^32");
  const int64_t slots = c.in[0].shape.elements();
  return {Type{DType::U32, {slots}}, Type{DType::U32, {n}}, Type{DType::U32, {slots}}};
}

static void params(const Call& c, Params& p) {
  const Shape& ids = c.in[0].shape;
  p.put(RouteParams{uint32_t(ids.elements()), uint32_t(ids[1]), uint32_t(c.attr(experts).i)});
}

// A group an expert, the last for ids that are none; where there are very many, it takes several.
static void launch(const Call& c, const KernelRow& row, Launches& out) {
  launch_own(row, out, uint32_t(std::min<int64_t>(c.attr(experts).i + 1, 65535)));
}

extern const OpDef def_route = {
    .op = Op::route,
    .name = "route",
    .doc =
        "Sort the slots of ids by expert, equal experts in slot order; return rows, counts and "
        "inverse.\n\n"
        "Slot t * k + j is choice j of token t. rows[i] is the token of the i-th slot in sorted "
        "order, counts[e]\n"
        "the number of slots of expert e, inverse[s] the place of slot s. An id that is not below "
        "experts is not\n"
        "counted and sorts last. gather_rows(x, rows) feeds grouped_matvec and grouped_matmul; "
        "combine, or\n"
        "gather_rows(y, inverse), returns to slot order.",
    .operands = {{"ids", "u32 [T, k]: the experts of each token"}},
    .attrs = {{"experts", AttrType::integer, "how many experts there are"}},
    .infer = infer,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "route", always, "exact", "a counting sort"}}, launch),
    .exact = true,
    .returns = "tuple[Tensor, Tensor, Tensor]",
    .checks = {{DataRule::below, 0, [](const Call& c) { return c.attr(experts).i; }}},
};

}  // namespace accel
