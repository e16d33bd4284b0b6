// Runs of steps that one launch does: which there are, what a launch is bound to, and the verifiers
// with planted defects.
#include "plan/passes.h"
#include "random_graph.h"
#include "tests/check.h"
#include "tests/planted.h"

using namespace accel;
using namespace accel::planner;
using random_graph::call;

namespace {

Limits cuda() {
  Limits limits;
  limits.backend = Backend::cuda;
  limits.fuse = true;
  limits.group_bytes = 227 * 1024;
  return limits;
}
Tensor product(Builder& b, const Tensor& x, const char* name, int64_t n) {
  const Tensor w = b.weight(name, DType::F16, {n, x.shape().back()});
  return call(Op::matmul, {x, w}, {{"w_order", random_graph::attr_text("nk")}}).value();
}
Tensor norm(Builder& b, const Tensor& x, const char* gain) {
  const Tensor g = b.weight(gain, DType::F32, {x.shape().back()});
  return call(Op::rms_norm, {x, g}, {{"eps", random_graph::attr_real(1e-5f)}}).value();
}

// norm 1, q 2, k 3, v 4, their sum 5 and 6, o 7, add 8, norm 9, gate 10, up 11, swiglu 12, down 13,
// add 14.
Graph layer(int64_t rows, bool show_norm = false) {
  Builder b("layer");
  Tensor x = b.input("x", DType::F32, {rows, 64});
  const Tensor n = norm(b, x, "attn_norm");
  if (show_norm) b.output("n", n);
  const Tensor q = product(b, n, "q", 128), k = product(b, n, "k", 128),
               v = product(b, n, "v", 128);
  const Tensor s = call(Op::mul, {call(Op::mul, {q, k}, {}).value(), v}, {}).value();
  x = call(Op::add, {x, product(b, s, "o", 64)}, {}).value();
  const Tensor h = norm(b, x, "ffn_norm");
  const Tensor a =
      call(Op::swiglu, {product(b, h, "gate", 96), product(b, h, "up", 96)}, {}).value();
  b.output("y", call(Op::add, {product(b, a, "down", 64), x}, {}).value());
  return b.finish();
}
std::string runs(const PlanData& p) {
  std::string s;
  for (const Combined& c : p.combined)
    s += (s.empty() ? "" : " ") + std::to_string(c.first) + "-" + std::to_string(c.last);
  return s;
}
PlanData combined() {
  return make_plan(layer(1), cuda(), {}, true);
}

void plant(const char* what, void (*verify)(const PlanData&), const char* says,
           const std::function<void(PlanData&)>& change) {
  expect_found(combined(), what, verify, says, change);
}

}  // namespace

TEST(test_a_layer_of_one_row_is_four_launches) {
  const PlanData p = combined();
  CHECK_EQ(runs(p), "0-3 6-7 8-11 12-13");
  for (const Combined& c : p.combined)
    for (int s = c.first; s <= c.last; ++s) CHECK_EQ(p.steps[size_t(s)].group, c.first);
  CHECK(p.selections[9].reason.find("_ring_one_short_fused does nodes 9, 10, 11 and 12") !=
        std::string::npos);
  CHECK(explain(p).find("4 runs of steps in one launch each") != std::string::npos);
}

TEST(test_what_somebody_else_reads_or_who_must_not_fuse_stays_apart) {
  CHECK_EQ(runs(make_plan(layer(1, true), cuda(), {}, true)), "6-7 8-11 12-13");
  CHECK_EQ(runs(make_plan(layer(2), cuda(), {}, true)), "");  // rings of one row
  Limits limits = cuda();
  limits.fuse = false;
  CHECK_EQ(runs(make_plan(layer(1), limits, {}, true)), "");
  limits = cuda();
  limits.group_bytes = 0;
  CHECK_EQ(runs(make_plan(layer(1), limits, {}, true)), "");
  CHECK_EQ(runs(make_naive_plan(layer(1), cuda())), "");
}

// Only rings are fused: a product on matrix units has another order.
TEST(test_products_on_matrix_units_are_launches_of_their_own) {
  Limits limits = cuda();
  limits.matrix = true;
  const PlanData p = make_plan(layer(1), limits, {}, true);
  CHECK_EQ(runs(p), "");
  for (const Step& step : p.steps)
    if (step.def->op == Op::matmul)
      CHECK_EQ(std::string(step.row->kernel), "matmul_matrix16_nk_f32_f16");
  limits.group_bytes = 100 * 1024;  // of sm_86: rings have room
  CHECK_EQ(runs(make_plan(layer(1), limits, {}, true)), "0-3 6-7 8-11 12-13");
}

// A norm that hands on to a product on matrix units and to one that has no such row.
TEST(test_a_ring_beside_matrix_units_is_fused_alone) {
  Limits limits = cuda();
  limits.matrix = true;
  Builder b("mixed");
  const Tensor h = norm(b, b.input("x", DType::F32, {1, 64}), "gain");
  b.output("y", product(b, h, "units", 64));
  const Tensor w = b.weight("ring", DType::F32, {64, 64}), r = b.input("r", DType::F32, {1, 64});
  const Tensor y = call(Op::matmul, {h, w}, {{"w_order", random_graph::attr_text("nk")}}).value();
  b.output("z", call(Op::add, {y, r}, {}).value());
  const PlanData p = make_plan(b.finish(), limits, {}, true);
  CHECK_EQ(runs(p), "2-3");
  CHECK(p.combined[0].launch.function.find("_ring_") != std::string::npos);
}

TEST(test_a_weight_that_the_run_makes_is_no_run) {
  Builder b("bilinear");
  const Tensor h = norm(b, b.input("x", DType::F32, {1, 64}), "gain");
  const Tensor w = product(b, h, "w", 64);
  b.output("y", call(Op::matmul, {h, w}, {{"w_order", random_graph::attr_text("nk")}}).value());
  CHECK_EQ(runs(make_plan(b.finish(), cuda(), {}, true)), "");
}

TEST(test_either_product_may_be_the_gate) {
  Builder b("swapped");
  const Tensor h = norm(b, b.input("x", DType::F32, {1, 64}), "gain");
  const Tensor up = product(b, h, "up", 64), gate = product(b, h, "gate", 64);
  b.output("y", call(Op::swiglu, {gate, up}, {}).value());
  const PlanData p = make_plan(b.finish(), cuda(), {}, true);
  CHECK_EQ(runs(p), "0-3");
  using At = std::pair<int, int>;
  CHECK(p.combined[0].operands[3] == At(2, 1) && p.combined[0].operands[7] == At(1, 1));
}

TEST(test_launches_are_bound_to_what_the_run_reads_and_leaves) {
  const PlanData p = combined();
  using Bound = std::vector<std::pair<int, int>>;
  const auto bound = [&](size_t i) {
    Bound all;
    for (const auto& at : p.combined[i].operands)
      if (at.first >= 0) all.push_back(at);
    return all;
  };
  CHECK(bound(0) == (Bound{{0, 0}, {0, 1}, {1, 1}, {1, 2}, {2, 1}, {2, 2}, {3, 1}, {3, 2}}));
  CHECK(bound(1) == (Bound{{6, 0}, {7, 0}, {6, 1}, {7, 2}}));
  CHECK(bound(2) == (Bound{{8, 0}, {8, 1}, {9, 1}, {11, 2}, {10, 1}}));
  CHECK(bound(3) == (Bound{{12, 0}, {13, 1}, {12, 1}, {13, 2}}));
}

TEST(test_planted_defects_of_combined_runs_are_found) {
  plant("a run without fusing", verify_combine, "without fusing",
        [](PlanData& p) { p.limits.fuse = false; });
  plant("a step of another group", verify_combine, "not of the run",
        [](PlanData& p) { p.steps[1].group = -1; });
  plant("overlapping runs", verify_combine, "overlap",
        [](PlanData& p) { p.combined[1].first = 3; });
  plant("a shorter run", verify_combine, "outside of its run",
        [](PlanData& p) { p.combined[2].last = 10; });
  plant("a result that is not bound", verify_combine, "read by nobody else, or neither",
        [](PlanData& p) { p.combined[0].operands[6].first = -1; });
  plant("a read of what is inside", verify_combine, "has not written yet", [](PlanData& p) {
    p.combined[0].operands.push_back({1, 0});
  });
  plant("a step of another run", verify_combine, "outside of its run", [](PlanData& p) {
    p.combined[0].operands.push_back({7, 0});
  });
  // The norm reads x until the last product is done.
  plant("the bytes of what is read used again", verify_combined_places, "touches bytes",
        [](PlanData& p) { p.steps[10].places.back() = p.steps[8].places[0]; });
}

// Pieces of decoders, some of them read by others than a run allows.
Graph random_pieces(uint64_t seed) {
  uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  const auto below = [&](uint64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return state % n;
  };
  Builder b("pieces");
  int names = 0;
  const auto fresh = [&](const char* what) { return what + std::to_string(names++); };
  const auto show = [&](const Tensor& t) {
    if (below(8) == 0) b.output(fresh("out").c_str(), t);
  };
  const int64_t rows = below(6) ? 1 : 2;
  Tensor x = b.input("x", DType::F32, {rows, 64});
  x = call(Op::mul, {x, x}, {}).value();
  for (int piece = 0; piece < 6; ++piece) {
    Tensor h = below(4) ? norm(b, x, fresh("gain").c_str()) : x;
    show(h);
    std::vector<Tensor> made;
    for (uint64_t n = 1 + below(4); n > 0; --n) {
      made.push_back(product(b, h, fresh("w").c_str(), 64));
      show(made.back());
    }
    Tensor y = made[0];
    for (size_t i = 1; i < made.size(); ++i)
      y = call(below(3) ? Op::swiglu : Op::mul, {y, made[i]}, {}).value();
    show(y);
    if (below(3)) y = product(b, y, fresh("o").c_str(), 64);
    show(y);
    x = below(2) ? call(Op::add, {x, y}, {}).value() : call(Op::add, {y, x}, {}).value();
  }
  b.output("y", x);
  return b.finish();
}

TEST(test_random_pieces_combine_under_every_verifier) {
  size_t runs = 0, steps = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const PlanData p = make_plan(random_pieces(seed), cuda(), {}, true);
    runs += p.combined.size(), steps += p.steps.size();
  }
  CHECK(runs > 1000 && runs < steps / 2);
}
