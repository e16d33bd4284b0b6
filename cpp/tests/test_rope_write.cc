// rope_write: what one launch takes in place of rope, cast and scatter_rows, and what it refuses.
#include "ops/rope_write.h"

#include <cstring>

#include "plan/passes.h"
#include "random_graph.h"
#include "shared/params/rope_write.h"
#include "tests/check.h"

using namespace accel;
using random_graph::attr_int;
using random_graph::attr_text;
using random_graph::call;

namespace {

struct Shape6 {
  int64_t n = 3, heads = 9, kv = 3, dim = 64, rotary = 64, v_width = 192;
  int64_t k_dim = 64, capacity = 40;
  DType state = DType::F16;
  bool repeated = false;  // one row of values for all
};

struct Made {
  PlanData plan;
  RopeWrite r;
};

Made made(const Shape6& s) {
  Builder b("step");
  const std::string base = b.scalar("base", ScalarKind::F32);
  const Tensor at = b.input("at", DType::U32, {s.n});
  const auto rope = [&](const Tensor& x, int64_t dim) {
    return call(Op::rope, {x, at, Operand()},
                {{"rotary_dim", attr_int(dim)},
                 {"base_name", attr_text(base)},
                 {"pairing", attr_text("halves")}})
        .value();
  };
  const auto cast = [&](const Tensor& x) {
    if (s.state == DType::F32) return x;
    Attr to;
    to.set = true;
    to.dtype = s.state;
    return call(Op::cast, {x}, {{"to", to}}).value();
  };
  b.output("q", rope(b.input("xq", DType::F32, {s.n, s.heads, s.dim}), s.rotary));
  const Tensor k = rope(b.input("xk", DType::F32, {s.n, s.kv, s.k_dim}), s.rotary);
  Tensor v = b.input("xv", DType::F32, {s.repeated ? 1 : s.n, s.v_width});
  if (s.repeated) v = tensor::broadcast(v, {s.n, s.v_width});
  const State keys = b.state("keys", s.state, {s.capacity, s.kv * s.k_dim});
  const State values = b.state("values", s.state, {s.capacity + 1, s.v_width});
  call(Op::scatter_rows, {keys, cast(k), at});
  call(Op::scatter_rows, {values, cast(v), at});
  Limits limits;
  limits.backend = Backend::cuda;
  Made m{make_plan(b.finish(), limits, {}, true), {}};
  for (const Step& step : m.plan.steps) {
    const Call* c = &step.call;
    const auto set = [&](const Call*& first, const Call*& second) { (first ? second : first) = c; };
    if (c->def->op == Op::rope) set(m.r.rope_q, m.r.rope_k);
    if (c->def->op == Op::cast) set(m.r.cast_k, m.r.cast_v);
    if (c->def->op == Op::scatter_rows) set(m.r.scatter_k, m.r.scatter_v);
  }
  const auto order = [](const Call*& first, const Call*& second, bool right) {
    if (!right) std::swap(first, second);
  };
  // In whichever order the plan has them.
  order(m.r.rope_q, m.r.rope_k, m.r.rope_q->in[0].shape[1] == s.heads);
  const auto of_keys = [&](const Call* c) { return c->in[0].shape[0] == s.capacity; };
  order(m.r.scatter_k, m.r.scatter_v, of_keys(m.r.scatter_k));
  const auto is_keys = [&](const Call* c) { return c->in[0].shape.rank() == 3; };
  if (m.r.cast_k) order(m.r.cast_k, m.r.cast_v, is_keys(m.r.cast_k));
  return m;
}

Limits gpu() {
  Limits limits;
  limits.backend = Backend::cuda;
  return limits;
}
bool takes(const Shape6& s) {
  const Made m = made(s);
  CombinedLaunch out;
  return rope_write(m.r, gpu(), out);
}

TEST(a_step_of_f16_caches_is_one_launch) {
  const Made m = made({});
  CombinedLaunch out;
  CHECK(rope_write(m.r, gpu(), out));
  CHECK_EQ(out.launch.function, std::string("rope_write_f16"));
  RopeWriteParams p;
  CHECK_EQ(out.params.words.size() * 4, sizeof p);
  std::memcpy(&p, out.params.words.data(), sizeof p);
  CHECK(p.q.rows == 27 && p.q.width == 64 && p.q.rotary_dim == 64 && p.q.rows_per_position == 9);
  CHECK(p.k.rows == 9 && p.k.rows_per_position == 3 && p.k.halves == 1);
  CHECK(p.q_groups == 4 && p.k_groups == 2);  // 27 and 9 rows of 32 items
  CHECK(p.n == 3 && p.k_heads == 3 && p.k_capacity == 40 && p.v_capacity == 41);
  CHECK_EQ(p.v_width, 192u);
  CHECK_EQ(out.launch.groups[0], 4u + 2u + 3u);
  CHECK_EQ(out.launch.threads, 256u);
  CHECK(out.launch.operands.empty());
  const std::vector<std::pair<const Call*, int>> want = {
      {m.r.rope_q, 0},    {m.r.rope_q, 1}, {m.r.rope_q, 2},    {m.r.rope_q, 3},
      {m.r.rope_k, 0},    {m.r.rope_k, 1}, {m.r.rope_k, 2},    {m.r.scatter_k, 0},
      {m.r.scatter_k, 2}, {m.r.cast_v, 0}, {m.r.scatter_v, 0}, {m.r.scatter_v, 2}};
  CHECK(out.operands == want);
}

TEST(a_state_of_f32_has_no_cast) {
  const Made m = made({.state = DType::F32});
  CombinedLaunch out;
  CHECK(rope_write(m.r, gpu(), out));
  CHECK_EQ(out.launch.function, std::string("rope_write_f32"));
  CHECK(out.operands[9] == (std::pair<const Call*, int>{m.r.scatter_v, 1}));
}

TEST(other_rows_and_sizes_are_taken) {
  CHECK(takes({.n = 1}));
  CHECK(takes({.n = 64}));
  CHECK(takes({.rotary = 32, .v_width = 7}));
}

TEST(what_the_launch_does_not_do_is_refused) {
  CHECK(!takes({.n = 65}));
  CHECK(!takes({.repeated = true}));
  const Made m = made({}), other = made({.state = DType::F32}), fewer = made({.n = 2});
  const auto refuses = [&](const auto& change) {
    RopeWrite r = m.r;
    change(r);
    CombinedLaunch out;
    return !rope_write(r, gpu(), out);
  };
  CHECK(!refuses([](RopeWrite&) {}));
  CHECK(refuses([](RopeWrite& r) { r.rope_q = nullptr; }));
  CHECK(refuses([](RopeWrite& r) { r.scatter_v = nullptr; }));
  CHECK(refuses([](RopeWrite& r) { r.cast_k = nullptr; }));
  CHECK(refuses([](RopeWrite& r) { r.rope_k = r.cast_k; }));
  CHECK(refuses([&](RopeWrite& r) { r.scatter_v = other.r.scatter_v; }));
  CHECK(refuses([&](RopeWrite& r) {
    r.cast_v = fewer.r.cast_v;
    r.scatter_v = fewer.r.scatter_v;
  }));
  CHECK(refuses([&](RopeWrite& r) { r.rope_k = fewer.r.rope_k; }));
  CombinedLaunch out;
  CHECK(!rope_write(m.r, Limits{}, out));  // the CPU has no launches
}

}  // namespace
