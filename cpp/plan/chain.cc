// chain: the steps of a sampling chain, from the scaling of the logits to the draw, which an
// executor may walk at once row by row. What lies between them has one reader each, so it need not
// exist. Where the walk does not take a row, the steps run one by one: no bit depends on it.
#include <algorithm>

#include "plan/passes.h"

namespace accel::planner {

namespace {
// The last but one may be left out.
constexpr int kFewest = 4, kMost = 5;
constexpr Op kChains[][kMost] = {
    {Op::scale, Op::softmax, Op::top_k_mask, Op::top_p_mask, Op::sample_categorical},
    {Op::row_scale, Op::softmax, Op::row_top_k_mask, Op::row_top_p_mask, Op::row_draw},
};
}  // namespace

// Steps of the chain that begins with step s, or 0.
static int length_at(const PlanData& p, int s) {
  for (const auto& ops : kChains) {
    int n = 0;
    for (const Op op : ops) {
      if (s + n == int(p.steps.size())) break;
      if (p.steps[size_t(s + n)].def->op == op) ++n;
      else if (op != ops[kMost - 2]) break;
    }
    if (n >= kFewest && p.steps[size_t(s + n - 1)].def->op == ops[kMost - 1]) return n;
  }
  return 0;
}

// Slot 0 of step s + 1 is the whole result of step s in the same rows, which nobody else reads and
// no port holds.
static bool hands_over(const PlanData& p, const ValueIndex& index, int s) {
  const Step &from = p.steps[size_t(s)], &to = p.steps[size_t(s) + 1];
  if (from.writes_value.size() != 1 || to.call.in.empty()) return false;
  const int v = from.writes_value[0];
  const Value& value = p.values[size_t(v)];
  const Operand o = operands_of(p, index, to)[0];
  if (!o.present || o.value != v || value.output_port >= 0) return false;
  const In& in = to.call.in[0];
  const Shape& shape = value.type.shape;
  if (!in.contiguous() || in.shape.elements() != shape.elements()) return false;
  if (in.shape.back() != shape.back()) return false;
  int readers = 0;
  for (const Step& step : p.steps)
    readers += int(std::count(step.reads_value.begin(), step.reads_value.end(), v));
  return readers == 1;
}

static bool is_chain(const PlanData& p, const ValueIndex& index, int first, int n) {
  for (int s = first; s + 1 < first + n; ++s)
    if (!hands_over(p, index, s)) return false;
  return n > 0;
}

static void tell(PlanData& p, int first, int n) {
  const Step& head = p.steps[size_t(first)];
  for (int s = first; s < first + n; ++s) {
    const Step& step = p.steps[size_t(s)];
    for (Selection& selection : p.selections)
      if (selection.node == step.node && selection.kernel == step.row->kernel)
        selection.reason += std::string("; fused: one walk from ") + head.def->name + " of node " +
                            std::to_string(head.node) + " where its rows allow it";
  }
}

void chain(PlanData& p) {
  for (Step& step : p.steps) step.chain = -1;
  if (!p.limits.fuse || p.limits.backend != Backend::cpu) return;
  const ValueIndex index(p);
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const int n = length_at(p, s);
    if (!is_chain(p, index, s, n)) continue;
    for (int t = s; t < s + n; ++t) p.steps[size_t(t)].chain = s;
    tell(p, s, n);
    s += n - 1;
  }
}

void verify_chain(const PlanData& p) {
  const ValueIndex index(p);
  for (int s = 0; s < int(p.steps.size()); ++s) {
    const Step& step = p.steps[size_t(s)];
    if (step.chain < 0) continue;
    if (!p.limits.fuse) fail("chain", p, s, "a chain without fusing");
    if (step.group >= 0) fail("chain", p, s, "a step of a chain is in a group");
    if (step.chain > s || length_at(p, step.chain) <= s - step.chain)
      fail("chain", p, s, "a chain is no run of the steps of one");
    const int last = step.chain + length_at(p, step.chain) - 1;
    if (p.steps[size_t(s < last ? s + 1 : step.chain)].chain != step.chain)
      fail("chain", p, s, "a chain is not whole");
    for (int t = s; t <= last; ++t)
      if (p.steps[size_t(t)].call.in[0].shape.back() != step.call.in[0].shape.back())
        fail("chain", p, t, "its rows are not those of the chain");
    if (s < last && !hands_over(p, index, s))
      fail("chain", p, s, "its result is not for the next step of the chain alone");
  }
}

}  // namespace accel::planner
