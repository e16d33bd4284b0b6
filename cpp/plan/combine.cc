// combine: runs of steps that one launch of CUDA does, where what passes between them has no other
// reader. The launch has the bits of the steps' own launches, which traces and checks still use.
#include <algorithm>

#include "ops/fused_product.h"
#include "ops/rope_write.h"
#include "plan/passes.h"

namespace accel::planner {

namespace {

class Combiner {
 public:
  explicit Combiner(PlanData& p) : p_(p), index_(p), touches_(dag_touches(p)) {
    readers_.resize(p.values.size());
    for (int s = 0; s < int(p.steps.size()); ++s) {
      operands_.push_back(operands_of(p, index_, p.steps[size_t(s)]));
      for (const int v : p.steps[size_t(s)].reads_value) readers_[size_t(v)].push_back(s);
    }
  }

  void run() {
    for (int s = 0; s < int(p_.steps.size());) {
      const int last = norm_run(s) || product_run(s) || rope_run(s) ? p_.combined.back().last : s;
      s = last + 1;
    }
  }

 private:
  const Step* step(int s) const {
    return s < int(p_.steps.size()) ? &p_.steps[size_t(s)] : nullptr;
  }
  bool is(int s, Op op) const { return step(s) && step(s)->def->op == op; }
  // The value that a slot reads, or -1: a port, or nothing.
  int read(int s, int slot) const { return operands_[size_t(s)][size_t(slot)].value; }
  int result(int s) const { return operands_[size_t(s)].back().value; }
  // Whether nothing but steps up to `last` reads the value.
  bool is_inner(int value, int last) const {
    return p_.values[size_t(value)].output_port < 0 && readers_[size_t(value)].back() <= last;
  }
  // Whether the slot reads the result of step `from`, whole, and no other slot does.
  bool takes(int s, int slot, int from) const {
    const Step& at = p_.steps[size_t(s)];
    for (int i = 0; i < int(at.call.in.size()); ++i)
      if ((read(s, i) == result(from)) != (i == slot)) return false;
    const In& in = at.call.in[size_t(slot)];
    return in.contiguous() &&
           in.shape.elements() == p_.values[size_t(result(from))].type.shape.elements();
  }
  // Steps of the run hand values on; they share nothing else that one of them writes.
  bool is_apart(int first, int last) const {
    for (int t = first; t <= last; ++t)
      for (int s = t + 1; s <= last; ++s)
        for (const Touch& a : touches_[size_t(t)])
          for (const Touch& b : touches_[size_t(s)])
            if (conflict(a, b) && (b.write || a.resource >= int(p_.values.size()))) return false;
    return true;
  }

  // Whether an operand that a launch would read is written by a step of its run.
  bool is_made_inside(int first, int s, int operand) const {
    const auto& operands = operands_[size_t(s)];
    if (operands[size_t(operand)].write || operands[size_t(operand)].value < 0) return false;
    for (int t = first; t < s; ++t)
      for (const int v : p_.steps[size_t(t)].writes_value)
        if (v == operands[size_t(operand)].value) return true;
    return false;
  }

  bool take(int first, int last, const CombinedLaunch& one) {
    Combined c;
    c.first = first, c.last = last;
    c.launch = one.launch;
    c.params = one.params.words;
    for (const auto& [call, operand] : one.operands) {
      int of = call ? first : -1;
      while (call && &p_.steps[size_t(of)].call != call) ++of;
      if (call && is_made_inside(first, of, operand)) return false;
      c.operands.push_back({of, call ? operand : 0});
    }
    for (int s = first; s <= last; ++s) p_.steps[size_t(s)].group = first;
    p_.combined.push_back(std::move(c));
    return true;
  }
  bool take_product(int first, int last, int product, const FusedProduct& f) {
    CombinedLaunch one;
    if (!is_apart(first, last) || !fused_product(f, *step(product)->row, p_.limits, one))
      return false;
    return take(first, last, one);
  }

  // A norm and the products of its result; swiglu of two of them.
  bool norm_run(int s) {
    static constexpr int kMost = 3;
    if (!is(s, Op::rms_norm)) return false;
    FusedProduct f;
    f.norm = &step(s)->call;
    int end = s + 1;
    for (; end <= s + kMost && step(end) && step(end)->def->tiles && takes(end, 0, s); ++end) {
      if (step(end)->row != step(s + 1)->row) return false;
      f.products.push_back(&step(end)->call);
    }
    if (f.products.empty() || !is_inner(result(s), end - 1)) return false;
    return swiglu_run(s, end, f) || take_product(s, end - 1, s + 1, f);
  }

  // swiglu of the two products behind the norm `s`, whichever of them is the gate.
  bool swiglu_run(int s, int end, FusedProduct pair) {
    if (pair.products.size() != 2 || !is(end, Op::swiglu)) return false;
    const int gate = read(end, 0) == result(s + 1) ? s + 1 : s + 2, up = 2 * s + 3 - gate;
    if (!takes(end, 0, gate) || !takes(end, 1, up) || !is_inner(result(gate), end) ||
        !is_inner(result(up), end))
      return false;
    pair.products = {&step(gate)->call, &step(up)->call};
    pair.swiglu = &step(end)->call;
    return take_product(s, end, s + 1, pair);
  }

  // A product and the residual that is added to it.
  bool product_run(int s) {
    if (!step(s) || !step(s)->def->tiles || !is(s + 1, Op::add)) return false;
    const Call& add = step(s + 1)->call;
    FusedProduct f;
    f.products = {&step(s)->call};
    f.add = &add;
    f.residual = read(s + 1, 0) == result(s) ? 1 : 0;
    const In& other = add.in[size_t(f.residual)];
    if (!takes(s + 1, 1 - f.residual, s) || !is_inner(result(s), s + 1) || !other.contiguous() ||
        other.shape.elements() != add.results[0].shape.elements())
      return false;
    return take_product(s, s + 1, s, f);
  }

  // A cast or none, and the rows that it gives written into a state.
  bool write_run(int& s, int rows, const Call*& cast, const Call*& scatter) const {
    cast = nullptr;
    const int begin = s;
    if (is(s, Op::cast)) {
      if (rows >= 0 && (!takes(s, 0, rows) || !is_inner(result(rows), s))) return false;
      cast = &step(s++)->call;
      if (!is(s, Op::scatter_rows) || !takes(s, 1, begin) || !is_inner(result(begin), s))
        return false;
    } else if (!is(s, Op::scatter_rows) ||
               (rows >= 0 && (!takes(s, 1, rows) || !is_inner(result(rows), s)))) {
      return false;
    }
    scatter = &step(s++)->call;
    return true;
  }

  // Rope of the keys, keys and values into their caches, rope of the queries.
  bool rope_run(int first) {
    if (!is(first, Op::rope)) return false;
    RopeWrite r = {};
    r.rope_k = &step(first)->call;
    int s = first + 1;
    if (!write_run(s, first, r.cast_k, r.scatter_k) || !write_run(s, -1, r.cast_v, r.scatter_v) ||
        !is(s, Op::rope))
      return false;
    r.rope_q = &step(s)->call;
    CombinedLaunch one;
    return is_apart(first, s) && rope_write(r, p_.limits, one) && take(first, s, one);
  }

  PlanData& p_;
  const ValueIndex index_;
  const std::vector<Touches> touches_;
  std::vector<std::vector<Operand>> operands_;  // by step
  std::vector<std::vector<int>> readers_;       // by value, ascending
};

std::string nodes_text(const PlanData& p, const Combined& c) {
  std::string text;
  for (int s = c.first; s <= c.last; ++s)
    text += (text.empty()  ? ""
             : s == c.last ? " and "
                           : ", ") +
            std::to_string(p.steps[size_t(s)].node);
  return text;
}

void tell(PlanData& p) {
  for (const Combined& c : p.combined)
    for (int s = c.first; s <= c.last; ++s) {
      const Step& step = p.steps[size_t(s)];
      for (Selection& selection : p.selections)
        if (selection.node == step.node && selection.kernel == step.row->kernel)
          selection.reason +=
              "; combined: one launch of " + c.launch.function + " does nodes " + nodes_text(p, c);
    }
}

}  // namespace

void combine(PlanData& p) {
  p.combined.clear();
  if (!p.limits.fuse || p.limits.backend != Backend::cuda) return;
  for (Step& step : p.steps) step.group = -1;
  Combiner(p).run();
  tell(p);
}

// Of a run: the results that nobody reads behind it.
static bool is_inner(const PlanData& p, int value, const Combined& c) {
  if (p.values[size_t(value)].output_port >= 0) return false;
  for (int s = 0; s < int(p.steps.size()); ++s) {
    if (s >= c.first && s <= c.last) continue;
    for (const int v : p.steps[size_t(s)].reads_value)
      if (v == value) return false;
  }
  return true;
}

// Reads what comes from before the run, and writes all of its results that are read behind it.
static void verify_operands(const PlanData& p, const ValueIndex& index, const Combined& c) {
  std::vector<std::vector<Operand>> operands;
  for (int s = c.first; s <= c.last; ++s)
    operands.push_back(operands_of(p, index, p.steps[size_t(s)]));
  const auto is_bound = [&](int s, size_t i) {
    return std::find(c.operands.begin(), c.operands.end(), std::pair(s, int(i))) !=
           c.operands.end();
  };
  std::vector<int> written;
  for (int s = c.first; s <= c.last; ++s) {
    const auto& of = operands[size_t(s - c.first)];
    for (size_t i = 0; i < of.size(); ++i) {
      const Operand& o = of[i];
      if (!o.present) continue;
      if (o.value < 0) {
        if (o.write && !is_bound(s, i))
          fail("combine", p, s, "a state that is written is not bound");
      } else if (o.write) {
        written.push_back(o.value);
        if (is_bound(s, i) == is_inner(p, o.value, c))
          fail("combine", p, s, "a result is bound and read by nobody else, or neither");
      } else if (is_bound(s, i) && std::count(written.begin(), written.end(), o.value)) {
        fail("combine", p, s, "a launch reads what it has not written yet");
      }
    }
  }
}

void verify_combine(const PlanData& p) {
  if (p.combined.empty()) return;
  if (!p.limits.fuse || p.limits.backend != Backend::cuda)
    fail("combine", p, p.combined[0].first, "a run without fusing");
  const ValueIndex index(p);
  int before = -1;
  for (const Combined& c : p.combined) {
    if (c.first <= before || c.last <= c.first || c.last >= int(p.steps.size()))
      fail("combine", p, c.first, "runs overlap, or one is no run");
    before = c.last;
    for (int s = c.first; s <= c.last; ++s)
      if (p.steps[size_t(s)].group != c.first || is_copy(p.steps[size_t(s)]))
        fail("combine", p, s, "a step is not of the run that it stands in");
    for (const auto& [s, operand] : c.operands)
      if (s >= 0 && (s < c.first || s > c.last))
        fail("combine", p, s, "a launch is bound to a step outside of its run");
    verify_operands(p, index, c);
  }
}

void verify_combined_places(const PlanData& p) {
  const std::vector<Touches> steps = memory_touches(p);
  for (const Combined& c : p.combined)
    for (int s = c.first; s <= c.last; ++s)
      for (int t = c.first; t < s; ++t)
        for (const Touch& a : steps[size_t(t)])
          for (const Touch& b : steps[size_t(s)])
            if (conflict(a, b) && (b.write || a.begin != b.begin || a.end != b.end))
              fail("combine", p, s, "touches bytes that step " + std::to_string(t) + " touches");
}

}  // namespace accel::planner
