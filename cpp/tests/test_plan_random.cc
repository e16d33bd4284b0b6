// Random graphs through every pass with every verifier.
#include "plan/passes.h"
#include "random_graph.h"
#include "tests/check.h"

using namespace accel;

static Graph random(uint64_t seed, int max_nodes = 40) {
  Builder b("random " + std::to_string(seed));
  random_graph::generate(b, seed, max_nodes);
  return b.finish();
}

TEST(p26_01_random_graphs_pass_every_verifier) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    try {
      const PlanData p = make_plan(random(seed), Limits{}, {}, true);
    } catch (const Error& e) {
      check::fail(__FILE__, __LINE__, "seed " + std::to_string(seed) + ": " + e.what());
      break;
    }
  }
}

// The generator reaches what the tests need: every kind of node, copies, pruning, sharing.
TEST(random_graphs_are_varied) {
  std::map<std::string, int> ops;
  int copies = 0, operand_copies = 0, pruned = 0, shared = 0, unfenced = 0, layers = 0, steps = 0;
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    const PlanData p = make_plan(random(seed), Limits{});
    for (const Selection& s : p.selections) ++ops[s.op], pruned += s.kernel == "none";
    for (const Step& s : p.steps) {
      ++steps;
      copies += s.def->op == Op::copy && s.copied_slot < 0;
      operand_copies += s.copied_slot >= 0;
      unfenced += !s.barrier_before;
    }
    for (int i = 0; i < int(p.slots.size()); ++i)
      layers += slot_name(p, i).find('[') != std::string::npos;
    shared += p.memory.transient_bytes < p.memory.unaliased_bytes;
  }
  for (const char* op :
       {"add", "mul", "scale", "silu", "swiglu", "cast", "gather_rows", "scatter_rows", "rms_norm",
        "softmax", "rope", "matmul", "attention", "argmax", "contiguous"})
    if (ops[op] < 50) check::fail(__FILE__, __LINE__, std::string(op) + " is hardly drawn");
  std::printf("steps %d copies %d operand copies %d pruned %d shared %d unfenced %d layers %d\n",
              steps, copies, operand_copies, pruned, shared, unfenced, layers);
  CHECK(copies > 300 && pruned > 300 && shared > 500 && unfenced > 1000 && layers > 300);
  CHECK(operand_copies > 20);
}
