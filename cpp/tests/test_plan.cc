// The planner on recorded graphs: output rules, selections, slots, memory, barriers, tables,
// refusals, progress, explain, speed; and every verifier with a planted defect.
#include <algorithm>
#include <chrono>
#include <set>

#include "plan/passes.h"
#include "random_graph.h"
#include "tests/check.h"

using namespace accel;
using random_graph::attr_int;
using random_graph::attr_real;
using random_graph::attr_text;
using random_graph::call;

namespace {

PlanData plan_of(const Builder& b) {
  return make_plan(b.finish(), Limits{}, {}, true);
}
Tensor silu(const Tensor& x, Site site = std::source_location::current()) {
  return call(Op::silu, {x}, {}, std::move(site)).value();
}
Tensor add(const Tensor& x, const Tensor& y, Site site = std::source_location::current()) {
  return call(Op::add, {x, y}, {}, std::move(site)).value();
}
State scatter(const State& s, const Tensor& rows, const Tensor& ids,
              Site site = std::source_location::current()) {
  return call(Op::scatter_rows, {s, rows, ids}, {}, std::move(site)).state;
}

// "silu:silu_f32 copy:copy_bytes", in the order of the report.
std::string report(const PlanData& p) {
  std::string s;
  for (const Selection& e : p.selections) s += (s.empty() ? "" : " ") + e.op + ":" + e.kernel;
  return s;
}
std::string place_text(const PlanData& p, const Place& place) {
  switch (place.kind) {
    case Place::none:
      return "none";
    case Place::arena:
      return "arena+" + std::to_string(place.offset);
    case Place::port:
      return slot_name(p, place.index) + "+" + std::to_string(place.offset);
    case Place::table:
      return "table" + std::to_string(place.index);
  }
  return "";
}
// "x+0 -> y+0" of a command.
std::string places(const PlanData& p, int command) {
  const Command& c = p.commands[size_t(command)];
  const size_t inputs = p.steps[size_t(command)].call.in.size();
  std::string s;
  for (size_t i = 0; i < c.operands.size(); ++i)
    s += (i == 0 ? "" : i == inputs ? " -> " : " ") + place_text(p, c.operands[i]);
  return s;
}
std::string slots(const PlanData& p) {
  std::string s;
  for (int i = 0; i < int(p.slots.size()); ++i)
    s += (i ? " " : "") + slot_name(p, i) + (p.slots[size_t(i)].read ? "r" : "") +
         (p.slots[size_t(i)].written ? "w" : "");
  return s;
}
std::string barriers(const PlanData& p) {
  std::string s;
  for (const Command& c : p.commands) s += c.barrier_before ? '|' : '.';
  return s;
}

}  // namespace

// ---------------------------------------------------------------- outputs (CONTRACT 6)

TEST(output_is_written_in_place_and_consumers_read_it) {
  Builder b;
  const Tensor y = silu(b.input("x", DType::F32, {4, 8}));
  b.output("y", y);
  b.output("z", silu(y));
  const PlanData p = plan_of(b);
  CHECK_EQ(report(p), "silu:silu_f32 silu:silu_f32");
  CHECK_EQ(places(p, 0), "x+0 -> y+0");
  CHECK_EQ(places(p, 1), "y+0 -> z+0");
  CHECK_EQ(slots(p), "xr yrw zw");
  CHECK_EQ(p.memory.transient_bytes, 0);
  CHECK_EQ(barriers(p), "||");
}

TEST(reshape_of_a_result_binds_to_the_producing_node) {
  Builder b;
  const Tensor y = silu(b.input("x", DType::F32, {4, 8}));
  b.output("y", tensor::reshape(y, {2, 16}));
  b.output("z", silu(y));
  const PlanData p = plan_of(b);
  CHECK_EQ(report(p), "silu:silu_f32 silu:silu_f32");
  CHECK_EQ(places(p, 0), "x+0 -> y+0");
  CHECK_EQ(places(p, 1), "y+0 -> z+0");
}

TEST(p26_09_prefix_slice_is_copied_and_listed) {
  Builder b;
  const Tensor y = silu(b.input("x", DType::F32, {4, 8}));
  b.output("y", tensor::slice(y, 0, 0, 3));
  const PlanData p = plan_of(b);
  CHECK_EQ(report(p), "silu:silu_f32 copy:copy_bytes");
  CHECK_EQ(p.selections[1].reason, "output y is the first 24 of 32 elements");
  CHECK_EQ(places(p, 0), "x+0 -> arena+0");
  CHECK_EQ(places(p, 1), "arena+0 -> y+0");
  CHECK_EQ(p.commands[1].operands[0].bytes, 96);
  CHECK_EQ(p.commands[1].params[0], 96u);
  CHECK_EQ(p.memory.transient_bytes, 128);
}

TEST(p26_09_one_value_under_several_names_is_copied_to_each) {
  Builder b;
  const Tensor y = silu(b.input("x", DType::F32, {4, 8}));
  b.output("y", y);
  b.output("flat", tensor::reshape(y, {32}));
  b.output("part", tensor::slice(y, 0, 0, 1));
  b.output("z", silu(y));
  const PlanData p = plan_of(b);
  CHECK_EQ(report(p),
           "silu:silu_f32 copy:copy_bytes copy:copy_bytes copy:copy_bytes silu:silu_f32");
  CHECK_EQ(p.selections[1].reason, "one value is 3 outputs: y, flat, part");
  CHECK_EQ(p.selections[3].reason, "output part is the first 8 of 32 elements");
  CHECK_EQ(places(p, 2), "arena+0 -> flat+0");
  CHECK_EQ(places(p, 4), "arena+0 -> z+0");
  CHECK_EQ(barriers(p), "||...");
}

// ---------------------------------------------------------------- pruning, selection

TEST(dead_nodes_keep_their_entry_and_states_are_kept) {
  Builder b;
  const Tensor x = b.input("x", DType::F32, {2, 4});
  silu(silu(x));
  const State s = b.state("s", DType::F32, {8, 4});
  const Tensor ids = b.input("ids", DType::U32, {2});
  scatter(s, silu(x), ids);
  const PlanData p = plan_of(b);
  CHECK_EQ(report(p), "silu:none silu:none silu:silu_f32 scatter_rows:scatter_rows_4");
  CHECK_EQ(p.kept.size(), 2u);
  CHECK_EQ(slots(p), "xr srw idsr");
  CHECK_EQ(p.commands.size(), 2u);
}

TEST(no_kernel_names_every_refusal_and_the_line) {
  Builder b;
  const int line = __LINE__ + 1;
  b.output("y", silu(b.input("x", DType::F32, {4})));
  setenv("ACCEL_SKIP_KERNEL", "silu_f32", 1);
  try {
    make_plan(b.finish(), Limits());
    CHECK(false);
  } catch (const Error& e) {
    CHECK(e.kind == ErrorKind::unsupported);
    CHECK(std::strstr(e.what(), "silu_f32 is switched off"));
    CHECK(std::strstr(e.what(), "silu_f16 reads f16"));
    CHECK_EQ(e.site.line, line);
    CHECK(std::strstr(e.what(), "silu: this backend cannot run it"));
    CHECK(std::strstr(e.what(), ("test_plan.cc:" + std::to_string(line)).c_str()));
  }
  unsetenv("ACCEL_SKIP_KERNEL");
}

TEST(rejected_rows_and_orders_are_reported) {
  Builder b;
  const Tensor x = b.input("x", DType::F16, {4, 8});
  b.output("y", silu(x));
  b.output("z", call(Op::softmax, {b.input("s", DType::F32, {4, 8})}).value());
  const PlanData p = plan_of(b);
  CHECK_EQ(p.selections[0].kernel, "silu_f16");
  CHECK_EQ(p.selections[0].rejected.size(), 1u);
  CHECK_EQ(p.selections[0].rejected[0], "silu_f32 reads f32");
  CHECK(p.selections[1].reason.find("lane16") != std::string::npos);
}

TEST(attention_reports_positions_and_blocks) {
  Builder b;
  const State k = b.state("k", DType::F32, {300, 1, 8}), v = b.state("v", DType::F32, {300, 1, 8});
  const std::string scale = b.scalar("scale", ScalarKind::F32);
  b.output("y", call(Op::attention,
                     {b.input("q", DType::F32, {2, 8}), k, v, b.input("len", DType::U32, {1}),
                      Operand(), Operand(), Operand()},
                     {{"scale_name", attr_text(scale)}})
                    .value());
  const PlanData p = plan_of(b);
  CHECK(p.selections[0].reason.find("300 positions in 3 blocks") != std::string::npos);
  CHECK_EQ(p.commands[0].scalars.size(), 1u);
  CHECK_EQ(slots(p), "kr vr qr lenr yw");
}

// ---------------------------------------------------------------- states and slots

TEST(p26_10_each_used_layer_has_its_own_slot_and_unused_ones_have_none) {
  Builder b;
  const State s = b.state("s", DType::F16, {4, 8, 2});
  const Tensor rows = b.input("rows", DType::F16, {1, 2}), ids = b.input("ids", DType::U32, {1});
  scatter(tensor::layer_state(s, 1), rows, ids);
  const State third = scatter(tensor::layer_state(s, 3), rows, ids);
  b.output("y", silu(tensor::slice(tensor::read_state(third), 0, 2, 5)));
  const PlanData p = plan_of(b);
  CHECK_EQ(slots(p), "s[16:32]rw s[48:64]rw rowsr idsr yw");
  CHECK_EQ(places(p, 0), "s[16:32]+0 rows+0 ids+0");
  CHECK_EQ(places(p, 2), "s[48:64]+8 -> y+0");
  CHECK_EQ(p.commands[2].operands[0].bytes, 12);
  CHECK_EQ(barriers(p), "|.|");  // the layers are disjoint; the read waits for its own write
}

TEST(a_read_before_a_write_of_the_same_range_is_fenced) {
  Builder b;
  const State s = b.state("s", DType::F32, {8, 2});
  b.output("y", silu(tensor::read_state(s)));
  const Tensor rows = b.input("rows", DType::F32, {1, 2}), ids = b.input("ids", DType::U32, {1});
  scatter(s, rows, ids);
  const PlanData p = plan_of(b);
  CHECK_EQ(barriers(p), "||");
}

TEST(mixed_ranges_are_fine_when_only_read) {
  Builder b;
  const State t = b.state("t", DType::F32, {2, 8, 2});
  b.output("z", silu(tensor::read_state(t)));
  b.output("y", silu(tensor::read_state(tensor::layer_state(t, 0))));
  CHECK_EQ(slots(plan_of(b)), "t[0:16]r tr zw yw");
}

TEST(mixed_ranges_are_refused_with_both_named) {
  Builder b;
  const Tensor rows = b.input("rows", DType::F32, {1, 2}), ids = b.input("ids", DType::U32, {1});
  const State s = b.state("s", DType::F32, {2, 8, 2}), t = b.state("t", DType::F32, {2, 8, 2});
  b.output("y", silu(tensor::read_state(s)));
  scatter(tensor::layer_state(s, 1), rows, ids);
  const Tensor whole = tensor::slice(tensor::reshape(tensor::read_state(t), {16, 2}), 0, 0, 1);
  const int line = __LINE__ + 1;
  scatter(tensor::layer_state(t, 0), whole, ids);
  try {
    plan_of(b);
    CHECK(false);
  } catch (const Error& e) {
    CHECK_EQ(e.diagnostics.size(), 2u);
    CHECK_EQ(e.diagnostics[0].message,
             "scatter_rows: s is used as s[16:32], which is written, and as s[0:32], which is "
             "read, and must be used by equal or disjoint ranges when one of them is written");
    CHECK_EQ(e.diagnostics[1].operand, "t");
    CHECK_EQ(e.diagnostics[1].site.line, line);
  }
}

TEST(rows_from_the_written_state_are_copied_first) {
  Builder b;
  const State s = b.state("s", DType::F32, {8, 2});
  const Tensor rows = tensor::slice(tensor::read_state(s), 0, 0, 3);
  scatter(s, rows, b.input("ids", DType::U32, {3}));
  const PlanData p = plan_of(b);
  CHECK_EQ(report(p), "scatter_rows:scatter_rows_4 copy:copy_bytes");
  CHECK_EQ(p.selections[1].reason, "rows is a part of s, which the node writes");
  CHECK_EQ(places(p, 0), "s+0 -> arena+0");
  CHECK_EQ(places(p, 1), "s+0 arena+0 ids+0");
  CHECK_EQ(barriers(p), "||");
}

TEST(rope_by_base_reads_a_table_that_is_shared) {
  Builder b;
  const std::string base = b.scalar("base", ScalarKind::F32),
                    other = b.scalar("o", ScalarKind::F32);
  const Tensor x = b.input("x", DType::F32, {2, 8}), ids = b.input("ids", DType::U32, {2});
  const auto rope = [&](const std::string& scalar, int64_t dim) {
    return call(Op::rope, {x, ids, Operand()},
                {{"rotary_dim", attr_int(dim)}, {"base_name", attr_text(scalar)}})
        .value();
  };
  b.output("a", rope(base, 8));
  b.output("b", rope(base, 8));
  b.output("c", rope(base, 4));
  b.output("d", rope(other, 4));
  b.output("e",
           call(Op::rope, {x, ids, b.input("f", DType::F32, {2})}, {{"rotary_dim", attr_int(4)}})
               .value());
  const PlanData p = plan_of(b);
  CHECK_EQ(p.tables.size(), 3u);
  CHECK_EQ(places(p, 1), "x+0 ids+0 table0 -> b+0");
  CHECK_EQ(places(p, 3), "x+0 ids+0 table2 -> d+0");
  CHECK_EQ(places(p, 4), "x+0 ids+0 f+0 -> e+0");
  CHECK_EQ(p.commands[3].operands[2].bytes, 8);
  CHECK_EQ(p.commands[3].scalars[0], 1);
  CHECK_EQ(p.commands[4].scalars.size(), 0u);
}

TEST(p26_51_elementwise_runs_are_read_in_place) {
  Builder b;
  const Tensor x = b.input("x", DType::F32, {4, 8});
  const Tensor bias = tensor::broadcast(b.weight("w", DType::F32, {8}), {4, 8});
  b.output("y", add(x, bias));
  b.output("z", silu(tensor::slice(x, 0, 1, 3)));
  const PlanData p = plan_of(b);
  CHECK_EQ(report(p), "add:add_f32 silu:silu_f32");
  CHECK_EQ(p.commands[0].operands[1].bytes, 32);
  CHECK_EQ(places(p, 1), "x+32 -> z+0");
  CHECK_EQ(p.commands[1].operands[0].bytes, 64);
  Builder c;
  const Tensor t = silu(c.input("x", DType::F32, {4, 8}));
  c.output("z", silu(tensor::slice(t, 0, 1, 3)));
  CHECK_EQ(places(plan_of(c), 1), "arena+32 -> z+0");
}

// ---------------------------------------------------------------- memory

TEST(a_chain_reuses_memory_and_a_diamond_does_not) {
  Builder b;
  Tensor t = b.input("x", DType::F32, {64});
  for (int i = 0; i < 6; ++i) t = silu(t);
  b.output("y", silu(t));
  const PlanData chain = plan_of(b);
  CHECK_EQ(chain.memory.unaliased_bytes, 6 * 256);
  CHECK_EQ(chain.memory.peak_bytes, 2 * 256);
  CHECK_EQ(chain.memory.transient_bytes, 2 * 256);
  CHECK_EQ(barriers(chain), "|||||||");
  // Two arms that no edge orders: their middles may not share, though their intervals are apart.
  Builder c;
  const Tensor x = silu(c.input("x", DType::F32, {64}));
  const Tensor left = silu(silu(x)), right = silu(silu(x));
  c.output("l", left);
  c.output("r", right);
  const PlanData diamond = plan_of(c);
  CHECK_EQ(diamond.memory.transient_bytes, 3 * 256);
  CHECK_EQ(diamond.memory.peak_bytes, 2 * 256);
}

TEST(naive_plan_shares_nothing_and_fences_everywhere) {
  Builder b;
  Tensor t = b.input("x", DType::F32, {60});
  for (int i = 0; i < 4; ++i) t = silu(t);
  b.output("y", silu(t));
  const PlanData p = make_naive_plan(b.finish(), Limits{});
  CHECK_EQ(p.memory.unaliased_bytes, 4 * 256);
  CHECK_EQ(p.memory.transient_bytes, 4 * 256);
  CHECK_EQ(p.memory.peak_bytes, 2 * 256);
  CHECK_EQ(barriers(p), "|||||");
}

TEST(an_arena_beyond_the_device_is_too_large) {
  Builder b;
  b.output("y", silu(silu(b.input("x", DType::F32, {1000}))));
  Limits small;
  small.max_bytes = 1000;
  try {
    make_plan(b.finish(), small);
    CHECK(false);
  } catch (const Error& e) {
    CHECK(e.kind == ErrorKind::capacity);
    CHECK_EQ(e.code, "too_large");
    CHECK_EQ(e.requested, 4032);
    CHECK_EQ(e.limit, 1000);
  }
}

// ---------------------------------------------------------------- progress, explain, speed

TEST(progress_walks_the_stages_and_its_exception_propagates) {
  Builder b;
  b.output("y", silu(silu(b.input("x", DType::F32, {8}))));
  std::string stages, last;
  int done = 0, total = 0;
  const Progress progress = [&](const std::string& stage, int d, int t) {
    if (stage != last) {
      CHECK_EQ(done, total);
      stages += (stages.empty() ? "" : " ") + stage;
      done = 0;
    }
    last = stage;
    CHECK_EQ(d, done + 1);
    done = d, total = t;
  };
  make_plan(b.finish(), Limits{}, progress);
  CHECK_EQ(done, total);
  CHECK_EQ(stages, "check select plan pipelines record");
  for (const char* stage : {"check", "select", "plan", "pipelines", "record"}) {
    const Progress stop = [&](const std::string& s, int, int) {
      if (s == stage) throw std::runtime_error("stopped");
    };
    CHECK_THROWS(make_plan(b.finish(), Limits{}, stop), std::runtime_error, "stopped");
  }
}

TEST(p26_05_explain_is_stable_and_complete) {
  const auto text = [] {
    Builder b("model");
    const Tensor x = b.input("x", DType::F32, {2, 8});
    const State s = b.state("s", DType::F32, {2, 4, 8});
    silu(x);
    const Tensor y = call(Op::softmax, {silu(x)}).value();
    scatter(tensor::layer_state(s, 1), y, b.input("ids", DType::U32, {2}));
    b.output("y", y);
    b.output("z", y);
    return explain(plan_of(b));
  };
  CHECK_EQ(text(), text());
  const std::string t = text();
  for (const char* words :
       {"plan model: cpu base, 4 nodes, 5 steps", "memory: transient", "state s f32[2 4 8]",
        "s[32:64] read written", "silu, test_plan.cc:", "softmax_f32", "arena [0:64]",
        "one value is 2 outputs: y, z", "  | 0 node 2", "- node 1 silu", "silu_f32"})
    if (t.find(words) == std::string::npos)
      check::fail(__FILE__, __LINE__, std::string(words) + " is not in\n" + t);
}

namespace {
// A Llama step of `layers` layers: 15 nodes a layer.
Graph llama(int layers) {
  Builder b("llama");
  const int64_t d = 64, heads = 4, dim = 16, ff = 128, vocab = 256;
  const std::string base = b.scalar("base", ScalarKind::F32),
                    scale = b.scalar("s", ScalarKind::F32);
  const Tensor tokens = b.input("tokens", DType::U32, {1}), at = b.input("at", DType::U32, {1});
  const Tensor length = b.input("length", DType::U32, {1});
  const State k = b.state("k", DType::F32, {layers, 32, heads, dim});
  const State v = b.state("v", DType::F32, {layers, 32, heads, dim});
  const Tensor table = b.weight("embed", DType::F32, {vocab, d});
  Tensor x = call(Op::gather_rows, {table, tokens}).value();
  const auto rms = [&](const Tensor& t, const std::string& n) {
    return call(Op::rms_norm, {t, b.weight(n, DType::F32, {d})}, {{"eps", attr_real(1e-5f)}})
        .value();
  };
  const auto mm = [&](const Tensor& t, const std::string& n, int64_t out) {
    const Tensor w = b.weight(n, DType::F32, {out, t.shape().back()});
    return call(Op::matmul, {t, w}, {{"w_order", attr_text("nk")}}).value();
  };
  const auto rope = [&](const Tensor& t) {
    return call(Op::rope, {tensor::reshape(t, {heads, dim}), at, Operand()},
                {{"rotary_dim", attr_int(dim)}, {"base_name", attr_text(base)}})
        .value();
  };
  for (int i = 0; i < layers; ++i) {
    const std::string n = std::to_string(i) + ".";
    const Tensor h = rms(x, n + "norm");
    const Tensor q = rope(mm(h, n + "q", d)), key = rope(mm(h, n + "k", d));
    const State ki = scatter(tensor::layer_state(k, i), key, at);
    const State vi = scatter(tensor::layer_state(v, i), mm(h, n + "v", d), at);
    const Tensor a = call(Op::attention, {q, ki, vi, length, Operand(), Operand(), Operand()},
                          {{"scale_name", attr_text(scale)}})
                         .value();
    x = add(x, mm(tensor::reshape(a, {1, d}), n + "o", d));
    const Tensor f = rms(x, n + "ffn");
    const Tensor g = call(Op::swiglu, {mm(f, n + "gate", ff), mm(f, n + "up", ff)}).value();
    x = add(x, mm(g, n + "down", d));
  }
  b.output("logits", mm(rms(x, "last"), "head", vocab));
  return b.finish();
}
}  // namespace

TEST(a_large_model_plans_in_milliseconds) {
  const Graph graph = llama(64);
  const auto start = std::chrono::steady_clock::now();
  const PlanData p = make_plan(graph, Limits{});
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  std::printf("%zu nodes, %zu values planned in %.1f ms; arena %lld of %lld bytes\n",
              graph.nodes.size(), p.values.size(), took.count(),
              (long long)p.memory.transient_bytes, (long long)p.memory.unaliased_bytes);
  CHECK(p.memory.transient_bytes * 20 < p.memory.unaliased_bytes);
  CHECK_EQ(p.tables.size(), 1u);
  make_plan(llama(4), Limits{}, {}, true);
}

TEST(p26_05_plans_are_identical_across_runs) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    const auto text = [&] {
      Builder b("r");
      random_graph::generate(b, seed);
      return explain(make_plan(b.finish(), Limits{}));
    };
    CHECK(text() == text());
  }
}

// ---------------------------------------------------------------- planted defects

namespace {
using Verify = void (*)(const PlanData&);
// A plan with a diamond, a state, a shared output, a rope, a dead node.
PlanData rich() {
  Builder b("rich");
  const Tensor x = b.input("x", DType::F32, {4, 8}), ids = b.input("ids", DType::U32, {4});
  silu(x);
  const Tensor a = silu(x), l = silu(silu(a)), r = call(Op::softmax, {a}).value();
  const Tensor joined = add(l, r);
  const State s = b.state("s", DType::F32, {2, 16, 8});
  const State s1 = scatter(tensor::layer_state(s, 1), joined, ids);
  const Tensor turned = call(Op::rope, {joined, ids, Operand()},
                             {{"rotary_dim", attr_int(8)},
                              {"base_name", attr_text(b.scalar("base", ScalarKind::F32))}})
                            .value();
  b.output("y", turned);
  b.output("z", tensor::reshape(turned, {32}));
  b.output("w", silu(tensor::slice(tensor::read_state(s1), 0, 0, 4)));
  return plan_of(b);
}
int step_of(const PlanData& p, const char* op, int nth = 0) {
  for (int s = 0; s < int(p.steps.size()); ++s)
    if (p.steps[size_t(s)].def->name == std::string(op) && nth-- == 0) return s;
  return -1;
}
template <class Change>
void plant(const char* what, Verify verify, Change change) {
  PlanData p = rich();
  verify(p);  // sound before
  change(p);
  try {
    verify(p);
    check::fail(__FILE__, __LINE__, std::string("not found: ") + what);
  } catch (const Error& e) {
    if (e.kind != ErrorKind::internal || !std::strstr(e.what(), "planner pass"))
      check::fail(__FILE__, __LINE__, std::string(what) + ": " + e.what());
  }
}
// infer and prune's promises hold before later passes add to the plan.
PlanData early() {
  PlanData p;
  Builder b;
  const Tensor x = b.input("x", DType::F32, {4, 8});
  silu(x);
  b.output("y", silu(silu(x)));
  p.graph = b.finish();
  planner::infer(p);
  return p;
}
template <class Change>
void plant_early(const char* what, Verify verify, bool pruned, Change change) {
  PlanData p = early();
  if (pruned) planner::prune(p);
  verify(p);
  change(p);
  CHECK_THROWS(verify(p), Error, "planner pass");
  (void)what;
}
}  // namespace

TEST(planted_infer_and_prune_defects_are_found) {
  using namespace planner;
  plant_early("type of a result", verify_infer, false, [](PlanData& p) {
    p.graph.nodes[1].call.results[0].shape = {8, 4};
  });
  plant_early("type of a value", verify_infer, false,
              [](PlanData& p) { p.values[1].type.dtype = DType::F16; });
  plant_early("call differs from operand", verify_infer, false,
              [](PlanData& p) { p.graph.nodes[1].in[0]->offset = 4; });
  plant_early("view leaves its source", verify_infer, false, [](PlanData& p) {
    p.graph.nodes[1].in[0]->shape = p.graph.nodes[1].call.in[0].shape = {5, 8};
    p.graph.nodes[1].call.results[0].shape = p.values[1].type.shape = {5, 8};
  });
  plant_early("node reads a later one", verify_infer, false, [](PlanData& p) {
    p.graph.nodes[1].in[0]->source.port = -1;
    p.graph.nodes[1].in[0]->source.node = 3;
  });
  plant_early("a needed node dropped", verify_prune, true,
              [](PlanData& p) { p.kept.erase(p.kept.begin()); });
  plant_early("a dead node kept", verify_prune, true,
              [](PlanData& p) { p.kept.insert(p.kept.begin(), 1); });
  plant_early("a value lost", verify_prune, true,
              [](PlanData& p) { p.values.erase(p.values.begin()); });
}

TEST(planted_select_and_materialize_defects_are_found) {
  using namespace planner;
  // verify_select looks at the plan as select left it.
  PlanData p = early();
  prune(p);
  planner::select(p, {});
  verify_select(p);
  PlanData broken = p;
  broken.steps[0].row = &op_def(Op::silu).kernels[1];
  CHECK_THROWS(verify_select(broken), Error, "rejects it");
  broken = p;
  broken.steps[0].row = &op_def(Op::add).kernels[0];
  CHECK_THROWS(verify_select(broken), Error, "planner pass select at step 0 (silu of node 2");
  broken = p;
  broken.selections[1].kernel = "silu_f16";
  CHECK_THROWS(verify_select(broken), Error, "names another kernel");
  broken = p;
  broken.selections[0].kernel = "silu_f32";
  CHECK_THROWS(verify_select(broken), Error, "a dropped node has a kernel");
  plant("a lost copy", verify_materialize,
        [](PlanData& q) { q.steps.erase(q.steps.begin() + step_of(q, "copy")); });
  plant("a lost entry", verify_materialize,
        [](PlanData& q) { std::erase_if(q.selections, [](auto& s) { return s.op == "copy"; }); });
  plant("an output without a value", verify_materialize, [](PlanData& q) {
    for (Value& v : q.values) v.output_port = -1;
  });
  plant("an output with another value", verify_materialize,
        [](PlanData& q) { std::swap(q.values[0].output_port, q.values.back().output_port); });
  plant("a strided operand", verify_materialize, [](PlanData& q) {
    q.steps[size_t(step_of(q, "softmax"))].call.in[0].strides = {1, 4};
  });
  plant("no table", verify_materialize, [](PlanData& q) { q.tables.clear(); });
}

TEST(planted_order_and_live_defects_are_found) {
  using namespace planner;
  plant("a swap", verify_order, [](PlanData& p) { std::swap(p.steps[0], p.steps[1]); });
  plant("independent nodes swapped", verify_order,
        [](PlanData& p) { std::swap(p.steps[1], p.steps[size_t(step_of(p, "softmax"))]); });
  plant("a copy moved", verify_order,
        [](PlanData& p) { std::rotate(p.steps.end() - 3, p.steps.end() - 1, p.steps.end()); });
  plant("a lost step", verify_order, [](PlanData& p) { p.steps.pop_back(); });
  plant("a user left out", verify_live, [](PlanData& p) { p.values[0].users.pop_back(); });
  plant("a user too many", verify_live, [](PlanData& p) { p.values[1].users.push_back(7); });
  plant("the writer not first", verify_live,
        [](PlanData& p) { std::swap(p.values[0].users[0], p.values[0].users[1]); });
}

TEST(planted_port_and_alias_defects_are_found) {
  using namespace planner;
  plant("a slot lost", verify_ports, [](PlanData& p) { p.slots.erase(p.slots.begin()); });
  plant("a slot too many", verify_ports, [](PlanData& p) {
    p.slots.push_back({p.slots.back().port, 0, 1, true, false});
  });
  plant("written not said", verify_ports, [](PlanData& p) {
    for (PortSlot& s : p.slots) s.written = false;
  });
  plant("an input written", verify_ports, [](PlanData& p) { p.slots[0].written = true; });
  // Every single transient moved onto every other one that overlaps in the DAG.
  const PlanData sound = rich();
  int found = 0, allowed = 0;
  for (size_t i = 0; i < sound.values.size(); ++i)
    for (size_t j = 0; j < sound.values.size(); ++j) {
      if (i == j || sound.values[i].output_port >= 0 || sound.values[j].output_port >= 0) continue;
      PlanData p = sound;
      p.values[i].arena_offset = p.values[j].arena_offset;
      int64_t end = 0;
      for (const Value& v : p.values)
        if (v.output_port < 0) end = std::max(end, v.arena_offset + v.type.bytes());
      p.memory.transient_bytes = end;
      try {
        verify_alias(p);
        ++allowed;
      } catch (const Error&) { ++found; }
    }
  CHECK(found >= 10 && allowed >= 1);
  plant("an unaligned offset", verify_alias, [](PlanData& p) { p.values[0].arena_offset += 4; });
  plant("a wrong peak", verify_alias, [](PlanData& p) { ++p.memory.peak_bytes; });
  plant("a wrong arena", verify_alias, [](PlanData& p) { p.memory.transient_bytes += 64; });
}

TEST(planted_place_barrier_and_record_defects_are_found) {
  using namespace planner;
  plant("an offset beyond the slot", verify_place,
        [](PlanData& p) { p.steps[0].places[0].offset = 64; });
  plant("a size", verify_place, [](PlanData& p) { p.steps[0].places[1].bytes -= 4; });
  plant("another port", verify_place, [](PlanData& p) { p.steps[0].places[0].index = 1; });
  plant("a place of another value", verify_place,
        [](PlanData& p) { p.steps[1].places[0].offset += p.limits.alignment * 2; });
  plant("in place", verify_place, [](PlanData& p) {
    for (Value& v : p.values)
      if (v.output_port < 0) v.arena_offset = 0;
    place(p);
  });
  plant("a lost table", verify_place,
        [](PlanData& p) { p.steps[size_t(step_of(p, "rope"))].places[2] = Place{}; });
  const PlanData sound = rich();
  int removed = 0;
  for (size_t s = 0; s < sound.steps.size(); ++s) {
    if (!sound.steps[s].barrier_before) continue;
    PlanData p = sound;
    p.steps[s].barrier_before = false;
    CHECK_THROWS(verify_barriers(p), Error, "planner pass barriers");
    ++removed;
  }
  CHECK(removed >= 5);
  plant("a lost command", verify_record, [](PlanData& p) { p.commands.pop_back(); });
  plant("another kernel", verify_record, [](PlanData& p) { p.commands[0].row = nullptr; });
  plant("a scalar", verify_record, [](PlanData& p) { p.commands[0].scalars.push_back(9); });
  plant("a lost barrier", verify_record, [](PlanData& p) { p.commands[0].barrier_before = false; });
  plant("a lost pipeline", verify_record, [](PlanData& p) { p.pipelines.pop_back(); });
}
