// Several submissions of one plan, and plans that share transients, with a gate that holds a
// submission in the middle of its execution.
#include "check.h"
#include "fake_plan.h"

using namespace accel;
using fake::all_of;
using fake::code_of;
using fake::words;

namespace {

// y = x + k by way of a transient; the gate stands between the two steps.
PlanData through_arena(uint32_t n, bool gated, const std::string& label = "arena") {
  fake::PlanMaker m(label);
  const int x = m.port("x", PortKind::Input, DType::U32, {n});
  const int y = m.port("y", PortKind::Output, DType::U32, {n});
  const int k = m.scalar("k", ScalarKind::U32);
  const Place from = m.slot(x, false), to = m.slot(y, true), mid = m.arena(0, n * 4);
  m.command("add", {from, mid}, {n, 1}, {k});
  if (gated) m.command("gate", {}, {0, 1});
  m.command("copy", {mid, to}, {n, 1});
  return m.p;
}

struct Set {
  DevicePtr d = fake::open_threads(1);
  RuntimePtr rt = Runtime::create(d);
  QueuePtr one = d->new_queue("one"), two = d->new_queue("two");
  BufferPtr x = d->new_buffer(DType::U32, 64, "x");
  std::vector<BufferPtr> outs;

  PlanPtr plan(PlanData data, int64_t max_in_flight = 1, TransientPoolPtr pool = nullptr) {
    CompileOptions options;
    options.max_in_flight = max_in_flight, options.pool = std::move(pool);
    return Plan::compile_data(rt, std::move(data), options);
  }
  FencePtr submit(const PlanPtr& p, uint32_t k, const QueuePtr& queue,
                  std::vector<FencePtr> after = {}) {
    outs.push_back(d->new_buffer(DType::U32, 64, "y"));
    return p->submit({{"x", all_of(x)}, {"y", all_of(outs.back())}}, {{"k", u32(k)}}, queue,
                     std::move(after));
  }
  uint32_t result() { return words(outs.back())[7]; }
};

}  // namespace

TEST(test_instances_are_made_one_by_one_and_refused_beyond_the_limit) {
  Set s;
  const TransientPoolPtr count = s.d->new_transient_pool("count");
  const PlanPtr p = s.plan(through_arena(64, true), 2);
  fake::ClosedGate gate;
  const FencePtr first = s.submit(p, 1, s.one);
  gate.wait_started();
  const FencePtr second = s.submit(p, 2, s.one);
  CHECK(!first->done() && !second->done());
  const FencePtr third = s.submit(p, 3, s.one);
  CHECK_EQ(code_of(third), "in_flight");
  CHECK(std::string(third->error()->what())
            .find("has 2 submissions in flight and may have at most "
                  "2 (max_in_flight)") != std::string::npos);
  gate.open();
  CHECK(first->wait() && second->wait());
  CHECK_EQ(words(s.outs[0])[7], 1u);
  CHECK_EQ(words(s.outs[1])[7], 2u);
  CHECK(s.submit(p, 4, s.one)->wait());
  CHECK_EQ(s.result(), 4u);
}

TEST(test_a_second_graph_of_a_pool_fails_where_its_execution_starts) {
  Set s;
  const TransientPoolPtr pool = s.d->new_transient_pool("p");
  const PlanPtr held = s.plan(through_arena(64, true, "held"), 2, pool);
  const PlanPtr other = s.plan(through_arena(64, false, "other"), 1, pool);
  CHECK_EQ(pool->graphs(), int64_t(2));
  CHECK_EQ(pool->bytes(), int64_t(256));
  fake::ClosedGate gate;
  const FencePtr running = s.submit(held, 1, s.one);
  gate.wait_started();
  const FencePtr clash = s.submit(other, 2, s.two);
  CHECK_THROWS(clash->wait(), Error, "pool p is executing one of its graphs");
  CHECK_EQ(code_of(clash), "in_flight");
  CHECK_EQ(s.result(), 0u);
  // Its own plan too, on another queue; an instance is made, which needs no growth.
  const FencePtr own = s.submit(held, 3, s.two);
  CHECK_THROWS(own->wait(), Error, "pool p is executing one of its graphs");
  CHECK_EQ(pool->graphs(), int64_t(3));
  s.two->flush();
  CHECK_THROWS(s.plan(through_arena(64, false), 1, pool), Error, "must be idle to compile with");
  CHECK_THROWS(s.plan(through_arena(128, false), 1, pool), Error, "must be idle to compile with");
  // Ordered by one queue or by after=, nothing clashes.
  const FencePtr same = s.submit(other, 4, s.one);
  gate.open();
  CHECK(running->wait() && same->wait());
  CHECK_EQ(s.result(), 4u);
  const FencePtr before = s.submit(held, 5, s.one), after = s.submit(other, 6, s.two, {before});
  CHECK(before->wait() && after->wait());
  CHECK_EQ(s.result(), 6u);
}

TEST(test_a_submission_that_waits_keeps_the_block_it_was_given) {
  Set s;
  const TransientPoolPtr pool = s.d->new_transient_pool("p");
  const PlanPtr small = s.plan(through_arena(64, false, "small"), 1, pool);
  const PlanPtr gate_plan = s.plan(fake::add_plan(8, 1, true));
  fake::ClosedGate gate;
  const FencePtr blocker = s.submit(gate_plan, 0, s.one);
  gate.wait_started();
  const FencePtr queued = s.submit(small, 9, s.one);  // has an address of the block of today
  const void* const old = pool->block().get();
  const PlanPtr large = s.plan(through_arena(1 << 20, false, "large"), 1, pool);
  CHECK(pool->block().get() != old);
  CHECK_EQ(pool->bytes(), int64_t(4) << 20);
  gate.open();
  CHECK(blocker->wait() && queued->wait());
  CHECK_EQ(s.result(), 9u);
  CHECK(s.submit(small, 10, s.one)->wait());
  CHECK_EQ(s.result(), 10u);
}

TEST(test_a_device_and_a_pool_count_what_uses_them) {
  Set s;
  TransientPoolPtr pool = s.d->new_transient_pool("p");
  PlanPtr p = s.plan(through_arena(64, false), 1, pool);
  CHECK_THROWS(pool->close(), Error, "pool p has 1 open graph and must have none to close");
  CHECK(!pool->closed());
  p->close();
  pool->close();
  pool->close();
  CHECK_THROWS(s.plan(through_arena(64, false), 1, pool), Error, "pool p is closed");
  const TransientPoolPtr second = s.d->new_transient_pool("");
  s.one->close(), s.two->close(), s.x->close();
  CHECK_THROWS(s.d->close(), Error, "1 live children (0 buffers, 0 queues, 1 transient pools");
  second->close();
  s.d->close();
}

TEST(test_memory_that_is_refused_leaves_pool_and_plan_as_they_were) {
  Set s;
  const TransientPoolPtr pool = s.d->new_transient_pool("p");
  const PlanPtr small = s.plan(through_arena(64, false), 1, pool);
  fail_allocation(1);
  CHECK_THROWS(s.plan(through_arena(128, false), 1, pool), Error, "pool p: the arena");
  CHECK_EQ(pool->bytes(), int64_t(256));
  CHECK_EQ(pool->graphs(), int64_t(1));
  CHECK_THROWS(s.plan(through_arena(64, false), 0), Error,
               "max_in_flight is 0 and must be positive");
  CHECK(s.submit(small, 3, s.one)->wait());
  CHECK_EQ(s.result(), 3u);
}
