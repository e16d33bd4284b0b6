// Sampling chains: what is one, the verifier with planted defects, and the walk against the single
// kernels, token by token.
#include <limits>

#include "kernels_util.h"
#include "plan/passes.h"
#include "random_graph.h"
#include "shared/params/elementwise.h"
#include "shared/params/row_policy.h"
#include "shared/params/rows.h"
#include "tests/planted.h"

using namespace accel;
using namespace accel::planner;
using namespace kernels_util;
using random_graph::call;

namespace {

// ---------------------------------------------------------------- the plan

enum Twist { plain, no_nucleus, no_top_k, shown, read_twice, other_rows };
// add 1, scale 2, softmax 3, masks 4 and 5, draw 6.
PlanData sampling(Twist twist, bool fuse = true) {
  Builder b("sampling");
  const Tensor in = b.input("logits", DType::F32, {3, 64});
  const Tensor draws = b.input("draws", DType::F32, {3});
  b.scalar("t", ScalarKind::F32);
  Attr name = random_graph::attr_text("t"), k;
  k.set = true, k.i = 5;
  Tensor x = call(Op::add, {in, in}).value();
  x = call(Op::scale, {x}, {{"scalar_name", name}}).value();
  if (twist == other_rows) x = tensor::reshape(x, {6, 32});
  x = call(Op::softmax, {x}).value();
  if (twist == other_rows) x = tensor::reshape(x, {3, 64});
  if (twist == shown) b.output("weights", x);
  if (twist != no_top_k) x = call(Op::top_k_mask, {x}, {{"k", k}}).value();
  const Tensor kept = x;
  if (twist != no_nucleus)
    x = call(Op::top_p_mask, {x}, {{"p", random_graph::attr_real(0.9f)}}).value();
  b.output("token", call(Op::sample_categorical, {x, draws}).value());
  if (twist == read_twice) b.output("twice", call(Op::add, {kept, kept}).value());
  Limits limits;
  limits.fuse = fuse;
  return make_plan(b.finish(), limits, {}, true);
}
std::string chains(const PlanData& p) {
  std::string s;
  for (const accel::Step& step : p.steps) s += (s.empty() ? "" : " ") + std::to_string(step.chain);
  return s;
}
void plant(const char* what, void (*verify)(const PlanData&), const char* says,
           const std::function<void(PlanData&)>& change) {
  expect_found(sampling(plain), what, verify, says, change);
}

// ---------------------------------------------------------------- the walk

const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

// clustered: neighbouring floats just below the greatest, whose exponentials tie and cross over;
// stepped: equal entries; deep: the k-th entry is far below the greatest; odd: NaN and infinities.
enum class Data { normal, clustered, stepped, half, deep, odd };
std::vector<float> logits(unsigned n, Data data, uint64_t seed) {
  Random random(seed);
  std::vector<float> v(n);
  for (float& x : v) {
    const float bell = random.unit() + random.unit() + random.unit() + random.unit() - 2;
    if (data == Data::normal) x = 6 * bell;
    if (data == Data::clustered) x = float_of(bits_of(3.0f) - random.next() % 600 % (n / 4 + 2));
    if (data == Data::stepped) x = float(random.next() % 9) / 4;
    if (data == Data::half) x = random.next() % 2 ? -kInf : bell;
    if (data == Data::deep) x = random.next() % n ? -300 * random.unit() : 40.0f;
    if (data == Data::odd) x = random.next() % 8 ? bell : random.next() % 2 ? kInf : kNan;
  }
  return v;
}

struct Chain {
  unsigned width, k;
  float share, factor, draw;  // share 0: no nucleus
  bool by_rows;               // the kernels of sample_rows
};

// One row through the single kernels and through the walk.
struct Both {
  uint32_t token = 0, walked = 0;
  bool taken = false;
};
Both run_both(const KernelTable& table, const Chain& c, const std::vector<float>& x) {
  std::vector<float> a = x, draws = {c.draw}, factors = {c.factor}, shares = {c.share};
  std::vector<float> scaled(x.size()), weights(x.size()), top(x.size()), kept(x.size());
  std::vector<uint32_t> ks = {c.k}, best = {123456}, scalars = {bits_of(c.factor)}, token = {0};
  const ElementwiseParams flat = {c.width, c.width, 1, 0};
  RowsParams rows = {1, c.width, 0, c.share, c.k, 1};
  const RowPolicyParams policy = {1, c.width, 0, 0};
  struct Command {
    const char* kernel;
    std::vector<void*> bufs;
    const void* params;
  };
  float* const masked = c.share ? kept.data() : top.data();
  std::vector<Command> commands;
  if (c.by_rows)
    commands = {
        {"row_scale", {a.data(), factors.data(), scaled.data()}, &policy},
        {"softmax_f32", {scaled.data(), weights.data()}, &rows},
        {"row_top_k_mask", {weights.data(), ks.data(), top.data()}, &policy},
        {"row_top_p_mask", {top.data(), shares.data(), kept.data()}, &policy},
        {"row_draw", {masked, draws.data(), factors.data(), best.data(), token.data()}, &rows}};
  else
    commands = {{"scale_f32", {a.data(), scaled.data()}, &flat},
                {"softmax_f32", {scaled.data(), weights.data()}, &rows},
                {"top_k_mask_f32", {weights.data(), top.data()}, &rows},
                {"top_p_mask_f32", {top.data(), kept.data()}, &rows},
                {"sample_categorical_f32", {masked, draws.data(), token.data()}, &rows}};
  if (!c.share) commands.erase(commands.begin() + 3);
  std::vector<KernelArgs> args;
  for (const Command& command : commands) {
    run(find(table, command.kernel), command.bufs, command.params, scalars, 0);
    args.push_back({command.bufs.data(), command.params, scalars.data(), nullptr});
  }
  const Kernel& mask = find(table, commands[2].kernel);
  std::vector<uint64_t> local(mask.local_bytes(&rows) / 8 + 1, ~uint64_t(0));
  Both both;
  both.token = token[0];
  const uint32_t n = uint32_t(args.size());
  CHECK(mask.chain_rows(args.data(), n) <= 1);
  both.taken = mask.chain_rows(args.data(), n) == 1 &&
               mask.chain_row(args.data(), n, 0, &both.walked, local.data());
  CHECK(a == x || std::any_of(x.begin(), x.end(), [](float v) { return v != v; }));
  return both;
}

}  // namespace

TEST(test_a_chain_runs_from_the_scaling_to_the_draw) {
  CHECK_EQ(chains(sampling(plain)), "-1 1 1 1 1 1");
  CHECK_EQ(chains(sampling(no_nucleus)), "-1 1 1 1 1");
  for (const PlanData& p : {sampling(no_top_k), sampling(shown), sampling(read_twice),
                            sampling(other_rows), sampling(plain, false)})
    CHECK(chains(p).find_first_not_of("- 1") == std::string::npos &&
          chains(p).find(" 1") == std::string::npos);
  const PlanData p = sampling(plain);
  std::string dispatches;
  for (const Command& c : p.commands)
    dispatches += std::to_string(c.dispatch) + (c.chained ? "c" : "");
  CHECK_EQ(dispatches, "01c1c1c1c1c");
  CHECK(p.selections[2].reason.find("fused: one walk from scale of node 2") != std::string::npos);
}

TEST(test_planted_defects_of_chains_are_found) {
  plant("a hole", verify_chain, "not whole", [](PlanData& p) { p.steps[3].chain = -1; });
  plant("a later head", verify_chain, "not whole", [](PlanData& p) { p.steps[4].chain = 2; });
  plant("the add in it", verify_chain, "no run", [](PlanData& p) { p.steps[0].chain = 0; });
  plant("a group in it", verify_chain, "in a group", [](PlanData& p) { p.steps[1].group = 0; });
  plant("without fusing", verify_chain, "without fusing",
        [](PlanData& p) { p.limits.fuse = false; });
  plant("a second reader", verify_chain, "alone",
        [](PlanData& p) { p.steps[5].reads_value.push_back(p.steps[2].writes_value[0]); });
  plant("an output", verify_chain, "alone",
        [](PlanData& p) { p.values[size_t(p.steps[3].writes_value[0])].output_port = 0; });
  plant("other rows", verify_chain, "not those of the chain", [](PlanData& p) {
    p.steps[5].call.in[0].shape = Shape{6, 32};
  });
  plant("two dispatches", verify_record, "not one dispatch",
        [](PlanData& p) { p.commands[5].dispatch = 2; });
  plant("a command left out", verify_record, "inside a dispatch",
        [](PlanData& p) { p.commands[5].chained = false; });
}

TEST(test_the_walk_draws_what_the_single_kernels_draw) {
  for (const KernelTable* table : tables()) {
    int taken = 0, all = 0;
    for (unsigned width : {1u, 40u, 63u, 130u, 1000u, 5003u, 20011u})
      for (Data data :
           {Data::normal, Data::clustered, Data::stepped, Data::half, Data::deep, Data::odd})
        for (unsigned k : {1u, 5u, 40u, 128u})
          for (float share : {0.0f, 0.05f, 0.9f, 1.0f}) {
            if (k > width) continue;
            const auto x = logits(width, data, width * 7 + k);
            for (float factor : {1.25f, 0.3f, 9.0f})
              for (float draw : {0.0f, 0.37f, 0.999f, kNan, 2.0f}) {
                if (width > 5003 && (factor == 0.3f || draw == 0.37f)) continue;
                const bool by_rows = draw == 0.999f;
                const Both b = run_both(*table, {width, k, share, factor, draw, by_rows}, x);
                taken += b.taken && (data == Data::normal || data == Data::clustered);
                all += data == Data::normal || data == Data::clustered;
                if (b.taken && b.token != b.walked)
                  check::fail(__FILE__, __LINE__,
                              std::string(table->isa) + " width " + std::to_string(width) + " k " +
                                  std::to_string(k) + ": another token");
              }
          }
    CHECK(2 * taken > all);  // what is left to the single kernels is rare
  }
}

TEST(test_what_a_walk_leaves_to_the_single_kernels) {
  const KernelTable& table = *tables().back();
  const auto x = logits(1000, Data::normal, 3);
  CHECK(run_both(table, {1000, 40, 0.9f, 1.0f, 0.5f, false}, x).taken);
  CHECK(run_both(table, {1000, 40, 0.9f, 1.0f, 0.5f, true}, x).taken);
  CHECK(!run_both(table, {1000, 129, 0.9f, 1.0f, 0.5f, true}, x).taken);
  CHECK(!run_both(table, {1000, 0, 0.9f, 1.0f, 0.5f, true}, x).taken);
  CHECK(!run_both(table, {1000, 40, 0.9f, 60.0f, 0.5f, false}, x).taken);  // below the lowest
  CHECK(
      !run_both(table, {1000, 40, 0.9f, -1.0f, 0.5f, false}, std::vector<float>(1000, kNan)).taken);
  // A greedy row takes the token that it is given.
  const Both greedy = run_both(table, {1000, 40, 0.9f, 0.0f, 0.5f, true}, x);
  CHECK(greedy.taken && greedy.walked == 123456 && greedy.token == 123456);
}
