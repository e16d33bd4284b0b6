// Groups of steps: what is grouped, how dispatches follow, and the verifiers with planted defects.
#include "plan/passes.h"
#include "random_graph.h"
#include "tests/check.h"
#include "tests/planted.h"

using namespace accel;
using namespace accel::planner;
using random_graph::call;

namespace {

Tensor matmul(const Tensor& x, const Tensor& w) {
  return call(Op::matmul, {x, w}, {}).value();
}
Tensor add(const Tensor& x, const Tensor& y) {
  return call(Op::add, {x, y}, {}).value();
}

// norm 1, gate 2, up 3, swiglu 4, down 5, add 6.
Graph layer() {
  Builder b("layer");
  const Tensor x = b.input("x", DType::F32, {4, 64});
  const Tensor n = call(Op::rms_norm, {x, b.weight("gain", DType::F32, {64})},
                        {{"eps", random_graph::attr_real(1e-5f)}})
                       .value();
  const Tensor gate = matmul(n, b.weight("gate", DType::F32, {64, 64}));
  const Tensor up = matmul(n, b.weight("up", DType::F32, {64, 64}));
  const Tensor h = call(Op::swiglu, {gate, up}, {}).value();
  b.output("y", add(x, matmul(h, b.weight("down", DType::F32, {64, 64}))));
  return b.finish();
}
Limits fusing() {
  Limits limits;
  limits.fuse = true;
  return limits;
}
PlanData fused() {
  return make_plan(layer(), fusing(), {}, true);
}

std::string groups(const PlanData& p) {
  std::string s;
  for (const Step& step : p.steps) s += (s.empty() ? "" : " ") + std::to_string(step.group);
  return s;
}
std::string dispatches(const PlanData& p) {
  std::string s;
  for (const Command& c : p.commands)
    s += (s.empty() ? "" : " ") + std::to_string(c.dispatch) + (c.follows ? "f" : "");
  return s;
}

void plant(const char* what, void (*verify)(const PlanData&), const char* says,
           const std::function<void(PlanData&)>& change) {
  expect_found(fused(), what, verify, says, change);
}

}  // namespace

TEST(test_a_layer_has_two_groups) {
  const PlanData p = fused();
  CHECK_EQ(groups(p), "-1 1 1 1 4 4");
  CHECK_EQ(dispatches(p), "0 1 1 1f 2 2f");
  const std::string reason = p.selections[3].reason;
  CHECK(reason.find("fused: runs on each piece of matmul of node 2 and matmul of node 3") !=
        std::string::npos);
  CHECK(explain(p).find("3 dispatches") != std::string::npos);
}

TEST(test_without_the_limit_and_in_a_naive_plan_every_command_is_a_dispatch) {
  for (const PlanData& p :
       {make_plan(layer(), Limits{}, {}, true), make_naive_plan(layer(), fusing())}) {
    CHECK_EQ(groups(p), "-1 -1 -1 -1 -1 -1");
    CHECK_EQ(dispatches(p), "0 1 2 3 4 5");
    CHECK(explain(p).find("dispatches") == std::string::npos);
  }
}

TEST(test_a_group_gives_up_no_more_memory_than_it_must) {
  const PlanData p = fused(), alone = make_plan(layer(), Limits{}, {}, true);
  // The normalised rows, both halves and their product live at once: nothing of a group is reused
  // in it.
  CHECK_EQ(p.memory.unaliased_bytes, alone.memory.unaliased_bytes);
  CHECK(p.memory.transient_bytes >= alone.memory.transient_bytes);
  CHECK(p.memory.transient_bytes <= 4 * 4 * 64 * 4);
}

TEST(test_planted_defects_of_groups_are_found) {
  plant("a hole in a group", verify_fuse, "not a run of steps",
        [](PlanData& p) { p.steps[2].group = -1; });
  plant("a group that begins later", verify_fuse, "not a run of steps",
        [](PlanData& p) { p.steps[1].group = 2; });
  plant("a norm heads a group", verify_fuse, "not cut alike", [](PlanData& p) {
    p.steps[0].group = 0;
    for (int s = 1; s < 4; ++s) p.steps[size_t(s)].group = 0;
  });
  plant("a product behind its operand", verify_fuse, "more than its own piece", [](PlanData& p) {
    for (int s = 1; s < 6; ++s) p.steps[size_t(s)].group = 1;
  });
  plant("another kernel", verify_fuse, "not cut alike",
        [](PlanData& p) { p.steps[2].row = &op_def(Op::matmul).kernels.back(); });
  plant("groups without fusing", verify_fuse, "without fusing",
        [](PlanData& p) { p.limits.fuse = false; });
  plant("the norm's bytes reused inside the group", verify_fused_places, "touches bytes",
        [](PlanData& p) { p.steps[3].places.back() = p.steps[1].places[0]; });
  plant("half of a result read", verify_fused_places, "touches bytes",
        [](PlanData& p) { p.steps[3].places[0].bytes /= 2; });
  plant("a barrier inside a dispatch", verify_record, "inside a dispatch",
        [](PlanData& p) { p.commands[4].dispatch = 1; });
}

TEST(test_random_graphs_fuse_under_every_verifier) {
  int grouped = 0, together = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    Builder b("random");
    random_graph::generate(b, seed);
    const PlanData p = make_plan(b.finish(), fusing(), {}, true);
    for (const Step& step : p.steps) grouped += follows(step);
    together += p.commands.back().dispatch + 1 < int(p.commands.size());
  }
  CHECK(grouped > 20);
  CHECK(together > 100);
}
