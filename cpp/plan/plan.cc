// The planner: passes in order, each followed by its verifier.
#include "plan/plan.h"

#include "plan/passes.h"

namespace accel {
namespace planner {

namespace {
enum class Style { aliased, naive };

class Pipeline {
 public:
  Pipeline(PlanData& p, const Progress& progress, bool verify)
      : p_(p), progress_(progress), verify_(verify) {}
  // The stage of the passes that follow, and how many there are.
  void stage(const char* name, int total) { stage_ = name, total_ = total, done_ = 0; }
  void run(void (*pass)(PlanData&), void (*verify)(const PlanData&)) {
    pass(p_);
    check(verify);
    if (progress_) progress_(stage_, ++done_, total_);
  }
  // For passes that report their own progress.
  void run(void (*pass)(PlanData&, const Progress&), void (*verify)(const PlanData&)) {
    pass(p_, progress_);
    check(verify);
  }

 private:
  void check(void (*verify)(const PlanData&)) {
    if (verify_) verify(p_);
  }
  PlanData& p_;
  const Progress& progress_;
  bool verify_;
  const char* stage_ = "";
  int total_ = 0, done_ = 0;
};
}  // namespace

static PlanData run_passes(Graph graph, const Limits& limits, const Progress& progress, bool verify,
                           Style style) {
  PlanData p;
  p.label = graph.label;
  p.limits = limits;
  p.limits.fuse &= style == Style::aliased;
  p.graph = std::move(graph);
  Pipeline passes(p, progress, verify);
  passes.stage("check", 2);
  passes.run(infer, verify_infer);
  passes.run(prune, verify_prune);
  passes.run(select, verify_select);
  passes.stage("plan", 10);
  passes.run(materialize, verify_materialize);
  passes.run(order, verify_order);
  passes.run(chain, verify_chain);
  passes.run(fuse, verify_fuse);
  passes.run(combine, verify_combine);
  passes.run(live, verify_live);
  passes.run(ports, verify_ports);
  passes.run(style == Style::naive ? alias_apart : alias, verify_alias);
  passes.run(place, verify_place);
  if (verify) verify_fused_places(p), verify_chain(p), verify_combined_places(p);
  passes.run(style == Style::naive ? barriers_everywhere : barriers, verify_barriers);
  passes.run(record, verify_record);
  return p;
}

}  // namespace planner

PlanData make_plan(Graph graph, const Limits& limits, const Progress& progress, bool verify) {
#ifndef NDEBUG
  verify = true;
#endif
  return planner::run_passes(std::move(graph), limits, progress, verify, planner::Style::aliased);
}

PlanData select_kernels(Graph graph, const Limits& limits) {
  PlanData p;
  p.label = graph.label;
  p.limits = limits;
  p.graph = std::move(graph);
  planner::infer(p);
  planner::prune(p);
  planner::select(p, {});
  return p;
}

PlanData make_naive_plan(Graph graph, const Limits& limits) {
  return planner::run_passes(std::move(graph), limits, {}, true, planner::Style::naive);
}

}  // namespace accel
