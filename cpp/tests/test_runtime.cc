// Devices, buffers, plans and bindings over hand-made plans: every refusal, every promise of the
// close rules.
#include <cmath>
#include <cstdlib>

#include "backends/cpu/isa.h"
#include "check.h"
#include "fake_plan.h"

using namespace accel;
using fake::add_plan;
using fake::all_of;
using fake::words;

namespace {

struct Set {
  DevicePtr d;
  RuntimePtr rt;
  PlanPtr plan;
  BufferPtr x, y;
  explicit Set(PlanData data, int threads = 2, int debug_fill = -1) {
    CpuOptions options;
    options.threads = threads, options.debug_fill = debug_fill;
    d = fake::open(options);
    rt = Runtime::create(d);
    plan = Plan::compile_data(rt, std::move(data));
    x = d->new_buffer(DType::U32, 8, "x");
    y = d->new_buffer(DType::U32, 8, "y");
    for (uint32_t i = 0; i < 8; ++i) words(x)[i] = i * i;
  }
  std::shared_ptr<Bindings> bind(uint32_t k = 1) {
    return plan->bind({{"x", all_of(x)}, {"y", all_of(y)}}, {{"k", u32(k)}});
  }
};

std::string codes(const Error& e) {
  std::string s;
  for (const Problem& p : e.problems) s += (s.empty() ? "" : " ") + p.code + ":" + p.name;
  return s;
}
std::string bind_problems(const PlanPtr& plan, const BindingMap& b, const ScalarMap& s) {
  try {
    plan->bind(b, s);
  } catch (const Error& e) {
    CHECK_EQ(int(e.kind), int(ErrorKind::bind));
    return codes(e);
  }
  return "none";
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// devices

TEST(test_isa_is_picked_by_features_and_forced_by_option_before_environment) {
  CHECK(machine_has("base"));
  CHECK(!machine_has("sse9"));
  CHECK_THROWS(pick_table("sse9"), Error,
               "isa is sse9 and must be one that this machine runs: base");
  setenv("ACCEL_CPU_ISA", "nonsense", 1);
  CHECK_THROWS(open_cpu(), Error, "ACCEL_CPU_ISA is nonsense");
  CpuOptions options;
  options.isa = "base";
  const auto isa_of = [](const CpuOptions& o) { return open_cpu(o)->info().isa; };
  CHECK_EQ(isa_of(options), "base");
  setenv("ACCEL_CPU_ISA", "base", 1);
  CHECK_EQ(isa_of({}), "base");
  setenv("ACCEL_CPU_ISA", "nonsense", 1);
  CHECK_EQ(isa_of(options), "base");
  unsetenv("ACCEL_CPU_ISA");
  std::string best;
  for (const auto* table : built_tables()) {
    options.isa = table->isa;
    if (machine_has(table->isa)) {
      CHECK_EQ(isa_of(options), std::string(table->isa));
      best = table->isa;
    } else {
      CHECK_THROWS(open_cpu(options), Error, "must be one that this machine runs");
    }
  }
  CHECK_EQ(isa_of({}), best);
}

TEST(test_enumeration_says_what_there_is_and_what_is_missing) {
  const Enumeration e = enumerate_devices();
  CHECK_EQ(e.devices.size(), size_t(1));
  CHECK_EQ(e.devices[0].backend, "cpu");
  CHECK(e.devices[0].threads >= 1);
  CHECK(!e.devices[0].name.empty());
  CHECK_EQ(e.notes.size(), size_t(2));
  CHECK(open_device(e.devices[0].id)->info().id == e.devices[0].id);
  std::array<uint8_t, 16> other{};
  CHECK_THROWS(open_device(other), Error, "must be one of enumerate_devices()");
}

TEST(test_cpu_options_are_checked) {
  CpuOptions options;
  options.threads = -1;
  CHECK_THROWS(fake::open(options), Error, "threads is -1");
  options.threads = 5000;
  CHECK_THROWS(fake::open(options), Error, "threads is 5000 and must be 0 (all cores) to 1024");
  options.threads = 1, options.debug_fill = 256;
  CHECK_THROWS(fake::open(options), Error, "debug_fill is 256");
  options.debug_fill = 0, options.lose_at = -2;
  CHECK_THROWS(fake::open(options), Error, "lose_at is -2");
  CHECK_EQ(fake::open_threads(3)->limits().threads, 3);
  CHECK(fake::open_threads(0)->info().threads >= 1);
}

// -------------------------------------------------------------------------------------------------
// buffers

TEST(test_buffers_are_zeroed_aligned_and_counted) {
  const DevicePtr d = fake::open_threads(1);
  for (const int64_t n : {int64_t(1), int64_t(17), int64_t(300000), int64_t(2000000)}) {
    const BufferPtr b = d->new_buffer(DType::F32, n, "b");
    CHECK_EQ(reinterpret_cast<uintptr_t>(b->host()) % 64, uintptr_t(0));
    const char* bytes = static_cast<const char*>(b->host());
    int64_t set = 0;
    for (int64_t i = 0; i < b->bytes(); ++i) set += bytes[i] != 0;
    CHECK_EQ(set, 0);
    std::memset(b->host(), 0xab, size_t(b->bytes()));
  }
  CHECK_THROWS(d->new_buffer(DType::F32, 0, "b"), Error, "count is 0 and must be positive");
  CHECK_THROWS(d->new_buffer(DType::F32, -3, "b"), Error, "count is -3");
  d->close();
}

TEST(p26_03_too_large_and_out_of_memory_differ_and_carry_numbers) {
  const DevicePtr d = fake::open_threads(1);
  const int64_t limit = d->limits().max_bytes;
  for (const int64_t count : {limit / 4 + 1, INT64_MAX}) {
    try {
      d->new_buffer(DType::F32, count, "huge");
      CHECK(!"accepted");
    } catch (const Error& e) {
      CHECK_EQ(e.code, "too_large");
      CHECK_EQ(int(e.kind), int(ErrorKind::capacity));
      CHECK_EQ(e.limit, limit);
      CHECK(e.requested > limit && e.available > 0);
    }
  }
  fail_allocation(1);
  try {
    d->new_buffer(DType::F32, 100, "small");
    CHECK(!"accepted");
  } catch (const Error& e) {
    CHECK_EQ(e.code, "out_of_memory");
    CHECK_EQ(e.requested, 400);
    CHECK_EQ(e.limit, limit);
    CHECK(std::strstr(e.what(), "buffer small"));
  }
  CHECK(d->new_buffer(DType::F32, 100, "small") != nullptr);
  d->close();
}

TEST(test_wrapped_memory_is_used_in_place_and_its_owner_kept) {
  const DevicePtr d = fake::open_threads(1);
  auto owner = std::make_shared<std::vector<uint32_t>>(8, 7u);
  const std::weak_ptr<std::vector<uint32_t>> watch = owner;
  uint32_t* at = owner->data();
  BufferPtr b = d->wrap(at, DType::U32, 8, false, std::move(owner), "mine");
  CHECK(b->host() == at && !b->writable);
  CHECK(!watch.expired());
  CHECK_THROWS(d->wrap(reinterpret_cast<char*>(at) + 1, DType::U32, 1, true, nullptr, "odd"), Error,
               "no multiple of 4");
  CHECK_THROWS(d->wrap(nullptr, DType::U32, 1, true, nullptr, "none"), Error, "host is null");
  const std::shared_ptr<void> bytes = b->memory();
  b->close();
  CHECK(b->host() == nullptr);
  CHECK(!watch.expired());  // whoever took memory() keeps the bytes
  d->close();
}

// ------------------------------------------------------------------------------------------------
// submit

TEST(test_plan_runs_with_prepared_bindings_and_with_maps) {
  for (const int threads : {1, 2, 3}) {
    Set s(add_plan(8, 4), threads);
    const auto bound = s.bind(5);
    for (uint32_t k = 5; k < 9; ++k) {
      bound->set_scalar("k", u32(k));
      CHECK(s.plan->submit(*bound)->wait());
      for (uint32_t i = 0; i < 8; ++i) CHECK_EQ(words(s.y)[i], i * i + k);
    }
    const BindingMap map{{"x", all_of(s.x)}, {"y", all_of(s.y)}};
    CHECK(s.plan->submit(map, {{"k", u32(100)}})->wait());
    CHECK_EQ(words(s.y)[3], 109u);
  }
}

TEST(test_two_phases_share_scratch_and_debug_fill_changes_nothing) {
  for (const int fill : {-1, 0, 0xff}) {
    fake::PlanMaker m("sum");
    const int x = m.port("x", PortKind::Input, DType::U32, {8});
    const int y = m.port("y", PortKind::Output, DType::U32, {1});
    const int k = m.scalar("k", ScalarKind::U32);
    const fake::Place t = m.arena(64, 32);
    m.command("add", {m.slot(x, false), t}, {8, 3}, {k});
    m.command("sum", {t, m.slot(y, true)}, {8, 5});
    Set s(m.p, 2, fill);
    for (int i = 0; i < 3; ++i) {
      CHECK(s.plan->submit(*s.bind(10))->wait());
      CHECK_EQ(words(s.y)[0], 80u + 140u);
    }
  }
}

TEST(test_debug_fill_overwrites_the_arena_before_each_submission) {
  fake::PlanMaker m("peek");
  m.port("x", PortKind::Input, DType::U32, {1});
  const int y = m.port("y", PortKind::Output, DType::U32, {2});
  m.scalar("k", ScalarKind::U32);
  m.command("copy", {m.arena(0, 8), m.slot(y, true)}, {2, 1});
  m.p.slots.push_back({0, 0, 1, true, false});
  Set s(m.p, 1, 0xa5);
  CHECK(s.plan->submit(*s.bind())->wait());
  CHECK_EQ(words(s.y)[0], 0xa5a5a5a5u);
  CHECK_EQ(words(s.y)[1], 0xa5a5a5a5u);
}

TEST(test_frequency_tables_follow_their_scalar) {
  fake::PlanMaker m("rope");
  const int y = m.port("y", PortKind::Output, DType::F32, {4});
  const int base = m.scalar("base", ScalarKind::F32);
  m.command("copy", {m.frequencies(base, 8), m.slot(y, true)}, {4, 1});
  const DevicePtr d = fake::open_threads(1);
  const PlanPtr plan = Plan::compile_data(Runtime::create(d), m.p);
  const BufferPtr out = d->new_buffer(DType::F32, 4, "out");
  const auto bound = plan->bind({{"y", all_of(out)}}, {{"base", f32(10000)}});
  for (const float b : {10000.f, 10000.f, 500000.f, 1.f, 10000.f}) {
    bound->set_scalar("base", f32(b));
    CHECK(plan->submit(*bound)->wait());
    for (int k = 0; k < 4; ++k)
      CHECK_EQ(static_cast<float*>(out->host())[k],
               float(std::exp(-2.0 * k / 8.0 * std::log(double(b)))));
  }
}

TEST(test_ranges_of_a_port_and_views_are_offset) {
  fake::PlanMaker m("layers");
  const int x = m.port("x", PortKind::State, DType::U32, {2, 2});
  const int k = m.scalar("k", ScalarKind::U32);
  m.command("add", {m.slot(x, false, 0, 2), m.slot(x, true, 2, 2)}, {2, 1}, {k});
  const DevicePtr d = fake::open_threads(1);
  const PlanPtr plan = Plan::compile_data(Runtime::create(d), m.p);
  const BufferPtr b = d->new_buffer(DType::U32, 9, "b");
  for (uint32_t i = 0; i < 9; ++i) words(b)[i] = i;
  // The buffer is larger and the view starts inside it.
  CHECK(plan->submit({{"x", {b, DType::U32, 3, 6}}}, {{"k", u32(100)}})->wait());
  const uint32_t want[9] = {0, 1, 2, 3, 4, 103, 104, 7, 8};
  for (int i = 0; i < 9; ++i) CHECK_EQ(words(b)[i], want[i]);
}

// ------------------------------------------------------------------------------------------------
// bind

TEST(test_bind_reports_all_problems_sorted) {
  Set s(add_plan(8, 1));
  const DevicePtr other = fake::open_threads(1);
  const BufferPtr strange = other->new_buffer(DType::U32, 8, "strange");
  const BufferPtr half = s.d->new_buffer(DType::F16, 4, "half");
  CHECK_EQ(bind_problems(s.plan, {}, {}), "unbound:x unbound:y unbound:k");
  CHECK_EQ(bind_problems(s.plan, {{"x", all_of(half)}, {"y", all_of(strange)}, {"z", all_of(s.x)}},
                         {{"q", u32(1)}, {"k", f32(1)}}),
           "dtype:x foreign:y kind:k unknown:q unknown:z");
  try {
    s.plan->bind({{"x", all_of(half)}}, {{"k", f32(1)}});
  } catch (const Error& e) {
    CHECK_EQ(e.code, "several");
    CHECK_EQ(std::string(e.what()),
             "input x is f16 and must be u32\noutput y is unbound and must be u32[8]\n"
             "scalar k is f32 and must be u32");
  }
  try {
    s.plan->bind({{"x", all_of(s.x)}}, {{"k", u32(1)}});
  } catch (const Error& e) { CHECK_EQ(e.code, "unbound"); }
}

TEST(test_bind_refuses_each_kind_of_bad_view) {
  Set s(add_plan(8, 1));
  const auto with_x = [&](const BufferView& v) {
    return bind_problems(s.plan, {{"x", v}, {"y", all_of(s.y)}}, {{"k", u32(1)}});
  };
  const auto with_y = [&](const BufferView& v) {
    return bind_problems(s.plan, {{"x", all_of(s.x)}, {"y", v}}, {{"k", u32(1)}});
  };
  CHECK_EQ(with_x({s.x, DType::U32, 0, 7}), "too_small:x");
  CHECK_EQ(with_x({s.x, DType::U32, 1, 8}), "too_small:x");
  CHECK_EQ(with_x({s.x, DType::U32, -1, 8}), "too_small:x");
  CHECK_EQ(with_x({s.x, DType::U32, INT64_MAX, 8}), "too_small:x");
  CHECK_EQ(with_x({s.x, DType::U32, 1, INT64_MAX}), "too_small:x");
  CHECK_EQ(with_x({s.x, DType::F32, 0, 8}), "dtype:x");
  CHECK_EQ(with_x({nullptr, DType::U32, 0, 8}), "unbound:x");
  const BufferPtr packed = s.d->new_buffer(DType::U32, 8, "packed");
  packed->layout = "tiles";
  CHECK_EQ(with_x(all_of(packed)), "layout:x");
  std::vector<uint32_t> mine(16);
  const BufferPtr fixed = s.d->wrap(mine.data(), DType::U32, 8, false, nullptr, "fixed");
  CHECK_EQ(with_x(all_of(fixed)), "none");
  CHECK_EQ(with_y(all_of(fixed)), "read_only:y");
  const BufferPtr bytes = s.d->wrap(mine.data(), DType::U8, 64, true, nullptr, "bytes");
  CHECK_EQ(with_y({bytes, DType::U32, 1, 8}), "none");
  const BufferPtr odd =
      s.d->wrap(reinterpret_cast<char*>(mine.data()) + 2, DType::F16, 20, true, nullptr, "odd");
  CHECK_EQ(with_y({odd, DType::U32, 0, 8}), "alignment:y");
  const BufferPtr gone = s.d->new_buffer(DType::U32, 8, "gone");
  gone->close();
  CHECK_EQ(with_x(all_of(gone)), "lifetime:x");
}

TEST(test_read_and_written_ports_never_share_bytes) {
  Set s(add_plan(4, 1));
  const auto pair = [&](const BufferPtr& a, int64_t from_a, const BufferPtr& b, int64_t from_b) {
    return bind_problems(s.plan,
                         {{"x", {a, DType::U32, from_a, 4}}, {"y", {b, DType::U32, from_b, 4}}},
                         {{"k", u32(1)}});
  };
  CHECK_EQ(pair(s.x, 0, s.x, 4), "none");
  CHECK_EQ(pair(s.x, 4, s.x, 0), "none");
  CHECK_EQ(pair(s.x, 0, s.x, 3), "overlap:y");
  CHECK_EQ(pair(s.x, 3, s.x, 0), "overlap:y");
  CHECK_EQ(pair(s.x, 2, s.x, 2), "overlap:y");
  // By address, not by buffer: two wrappings of one array.
  std::vector<uint32_t> mine(8);
  const BufferPtr a = s.d->wrap(mine.data(), DType::U32, 4, true, nullptr, "a");
  const BufferPtr b = s.d->wrap(mine.data() + 3, DType::U32, 4, true, nullptr, "b");
  CHECK_EQ(pair(a, 0, b, 0), "overlap:y");
  CHECK_THROWS(s.plan->bind({{"x", all_of(a)}, {"y", all_of(b)}}, {{"k", u32(1)}}), Error,
               "output y shares 4 bytes with input x and must be apart from it");
}

TEST(test_ports_that_are_only_read_may_share_bytes) {
  fake::PlanMaker m("twice");
  const int x = m.port("x", PortKind::Input, DType::U32, {8});
  const int w = m.port("w", PortKind::Weight, DType::U32, {8});
  const int y = m.port("y", PortKind::Output, DType::U32, {8});
  const int z = m.port("z", PortKind::Output, DType::U32, {8});
  m.command("copy", {m.slot(x, false), m.slot(y, true)}, {8, 1});
  m.command("copy", {m.slot(w, false), m.slot(z, true)}, {8, 1});
  const DevicePtr d = fake::open_threads(1);
  const PlanPtr plan = Plan::compile_data(Runtime::create(d), m.p);
  const BufferPtr in = d->new_buffer(DType::U32, 8, "in"),
                  out = d->new_buffer(DType::U32, 16, "out");
  const BufferView a{out, DType::U32, 0, 8}, b{out, DType::U32, 8, 8}, c{out, DType::U32, 4, 8};
  CHECK_EQ(bind_problems(plan, {{"x", all_of(in)}, {"w", all_of(in)}, {"y", a}, {"z", b}}, {}),
           "none");
  CHECK_EQ(bind_problems(plan, {{"x", all_of(in)}, {"w", all_of(in)}, {"y", a}, {"z", c}}, {}),
           "overlap:y");
  CHECK_EQ(bind_problems(plan, {{"x", all_of(in)}, {"w", c}, {"y", a}, {"z", b}}, {}),
           "overlap:y overlap:z");
}

TEST(test_failed_assignment_or_update_changes_nothing) {
  Set s(add_plan(8, 1));
  const auto bound = s.bind(5);
  const BufferPtr small = s.d->new_buffer(DType::U32, 4, "small"),
                  good = s.d->new_buffer(DType::U32, 8, "good");
  words(good)[1] = 50;
  CHECK_THROWS(bound->set("x", all_of(small)), Error,
               "input x is 4 elements and must be at least 8");
  CHECK_THROWS(bound->set("x", all_of(s.y)), Error, "shares 32 bytes");
  CHECK_THROWS(bound->set("nothing", all_of(s.x)), Error, "nothing is bound and must be a port");
  CHECK_THROWS(bound->set("k", all_of(s.x)), Error, "scalar k is bound to a buffer");
  CHECK_THROWS(bound->set_scalar("k", f32(1)), Error, "scalar k is f32 and must be u32");
  CHECK_THROWS(bound->set_scalar("x", u32(1)), Error, "scalar x is given");
  CHECK_THROWS(bound->update({{"x", all_of(good)}, {"y", all_of(small)}}, {{"k", u32(9)}}), Error,
               "output y is 4");
  CHECK_THROWS(bound->update({{"x", all_of(good)}, {"y", all_of(good)}}, {{"k", u32(9)}}), Error,
               "shares 32 bytes");
  CHECK_THROWS(bound->update({{"x", all_of(good)}}, {{"k", f32(9)}}), Error, "scalar k is f32");
  CHECK(s.plan->submit(*bound)->wait());
  CHECK_EQ(words(s.y)[1], 6u);
  CHECK_EQ(words(good)[1], 50u);
  // Exchanged ports in one update: neither alone would be accepted.
  bound->update({{"x", all_of(s.y)}, {"y", all_of(s.x)}}, {{"k", u32(1)}});
  CHECK(s.plan->submit(*bound)->wait());
  CHECK_EQ(words(s.x)[1], 7u);
  bound->set("x", all_of(good));
  CHECK(s.plan->submit(*bound)->wait());
  CHECK_EQ(words(s.x)[1], 51u);
  // Nothing is held of what was exchanged for something else.
  small->close();
  s.y->close();
  CHECK(s.plan->submit(*bound)->wait());
}

TEST(test_what_is_no_longer_bound_is_no_longer_held) {
  Set s(add_plan(4, 1, true));
  const auto bound = s.bind(5);
  const BufferPtr both = s.d->new_buffer(DType::U32, 8, "both");
  // Neighbours in one buffer share nothing.
  bound->set("x", {both, DType::U32, 0, 4});
  bound->set("y", {both, DType::U32, 4, 4});
  CHECK_THROWS(bound->set("y", BufferView{both, DType::U32, 3, 4}), Error, "shares 4 bytes");
  fake::ClosedGate gate;
  const FencePtr f = s.plan->submit(*bound);
  s.x->close(), s.y->close();   // replaced: free although a submission is in flight
  CHECK_EQ(both->in_use(), 1);  // one submission, although by two ports
  gate.open();
  CHECK(f->wait());
  CHECK_EQ(words(both)[4], 5u);
}

// -----------------------------------------------------------------------------------------------
// in flight

TEST(p26_04_second_submit_in_flight_is_refused_and_changes_nothing) {
  Set s(add_plan(8, 2, true));
  fake::ClosedGate gate;
  const auto bound = s.bind(5);
  const FencePtr first = s.plan->submit(*bound);
  gate.wait_started();
  const FencePtr second = s.plan->submit(*bound);
  CHECK(second->done() && !first->done());
  CHECK_EQ(fake::code_of(second), "in_flight");
  CHECK_THROWS(second->wait(), Error, "may have at most 1 (max_in_flight): wait for a fence");
  CHECK_EQ(fake::code_of(s.plan->submit({{"x", all_of(s.x)}}, {})),
           "in_flight");  // before any other problem
  // A value changed after the submission affects only the next one.
  const BufferPtr later = s.d->new_buffer(DType::U32, 8, "later");
  bound->set("y", all_of(later));
  bound->set_scalar("k", u32(70));
  gate.open();
  CHECK(first->wait());
  CHECK_EQ(words(s.y)[2], 9u);
  CHECK_EQ(words(later)[2], 0u);
  CHECK(s.plan->submit(*bound)->wait());
  CHECK_EQ(words(later)[2], 74u);
  CHECK_EQ(words(s.y)[2], 9u);
}

TEST(test_the_slot_and_buffers_are_free_when_wait_returns) {
  Set s(add_plan(8, 2));
  for (int i = 0; i < 300; ++i) {
    const auto bound = s.bind(uint32_t(i));
    const FencePtr f = s.plan->submit(*bound);
    CHECK(f->wait());
    CHECK_EQ(words(s.y)[1], uint32_t(i) + 1);
    CHECK_EQ(s.y->in_use(), 0);
    s.y->close();  // throws if anything still holds it
    s.y = s.d->new_buffer(DType::U32, 8, "y");
  }
}

TEST(test_buffer_in_use_refuses_to_close_and_a_closed_one_is_found_at_submit) {
  Set s(add_plan(8, 2, true));
  const auto bound = s.bind(5);
  {
    fake::ClosedGate gate;
    const FencePtr f = s.plan->submit(*bound);
    CHECK_EQ(s.x->in_use(), 1);
    CHECK_THROWS(s.x->close(), Error, "buffer x is held by 1 submission in flight");
    CHECK(!s.x->closed());
    CHECK(!s.x->wait_idle(0.02));
    gate.open();
    CHECK(s.x->wait_idle());
    CHECK(f->wait());
  }
  s.x->close();
  const FencePtr f = s.plan->submit(*bound);
  CHECK(f->done());
  CHECK_EQ(fake::code_of(f), "lifetime");
  CHECK_THROWS(f->wait(), Error, "input x is a closed buffer and must be open");
  // The failure left the slot free.
  const BufferPtr fresh = s.d->new_buffer(DType::U32, 8, "fresh");
  bound->set("x", all_of(fresh));
  CHECK(s.plan->submit(*bound)->wait());
  CHECK_EQ(words(s.y)[7], 5u);
}

TEST(test_bindings_of_another_plan_and_queues_of_another_device_are_refused) {
  Set s(add_plan(8, 1)), t(add_plan(8, 1));
  const auto bound = s.bind(1);
  CHECK_EQ(fake::code_of(t.plan->submit(*bound)), "foreign");
  CHECK_EQ(fake::code_of(s.plan->submit(*bound, t.d->default_queue())), "foreign");
  CHECK_EQ(fake::code_of(s.plan->submit(Bindings())), "foreign");
  CHECK_EQ(fake::code_of(s.plan->submit(*bound, nullptr, {nullptr})), "unbound");
  const QueuePtr q = s.d->new_queue("q");
  q->close();
  CHECK_EQ(fake::code_of(s.plan->submit(*bound, q)), "lifetime");
  CHECK(s.plan->submit(*bound)->wait());
}

TEST(test_submissions_order_between_queues_by_after) {
  Set s(add_plan(8, 2, true));
  const PlanPtr next = Plan::compile_data(s.rt, add_plan(8, 2));
  const BufferPtr z = s.d->new_buffer(DType::U32, 8, "z");
  fake::ClosedGate gate;
  const QueuePtr q = s.d->new_queue("q");
  const FencePtr a = s.plan->submit(*s.bind(1));
  const FencePtr b = next->submit({{"x", all_of(s.y)}, {"y", all_of(z)}}, {{"k", u32(10)}}, q, {a});
  CHECK(!b->wait(0.02));
  gate.open();
  CHECK(b->wait());
  for (uint32_t i = 0; i < 8; ++i) CHECK_EQ(words(z)[i], i * i + 11);
  const FencePtr bad = Fence::failed(device_error("gone wrong"));
  const FencePtr c =
      next->submit({{"x", all_of(s.y)}, {"y", all_of(z)}}, {{"k", u32(0)}}, q, {bad});
  CHECK_THROWS(c->wait(), Error, "gone wrong");
  CHECK_EQ(words(z)[0], 11u);
  CHECK(next->submit({{"x", all_of(s.y)}, {"y", all_of(z)}}, {{"k", u32(0)}}, q)
            ->wait());  // the slot is free
}

TEST(test_lost_device_fails_the_fence_and_keeps_the_plan_closable) {
  const DevicePtr d = fake::open_threads(2, 2);
  const RuntimePtr rt = Runtime::create(d);
  const PlanPtr plan = Plan::compile_data(rt, add_plan(8, 2));
  const BufferPtr x = d->new_buffer(DType::U32, 8, "x"), y = d->new_buffer(DType::U32, 8, "y");
  const auto bound = plan->bind({{"x", all_of(x)}, {"y", all_of(y)}}, {{"k", u32(3)}});
  CHECK(plan->submit(*bound)->wait());
  for (int i = 0; i < 2; ++i) {
    const FencePtr f = plan->submit(*bound);
    CHECK_EQ(fake::code_of(f), "lost");
    CHECK_EQ(int(f->error()->kind), int(ErrorKind::lost));
  }
  plan->close();
  rt->close();
  x->close(), y->close();
  d->close();
}

// ------------------------------------------------------------------------------------------------
// closing

TEST(p26_25_plan_close_waits_and_runtime_counts_open_plans) {
  Set s(add_plan(8, 2, true));
  const PlanPtr second = Plan::compile_data(s.rt, add_plan(8, 2));
  CHECK_THROWS(s.rt->close(), Error, "runtime has 2 open plans and must have none");
  const auto bound = s.bind(5);
  fake::ClosedGate gate;
  const FencePtr f = s.plan->submit(*bound);
  gate.wait_started();
  std::thread opener([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    gate.open();
  });
  s.plan->close();
  CHECK(f->wait(1));
  CHECK_EQ(words(s.y)[1], 6u);
  opener.join();
  s.plan->close();
  CHECK(s.plan->closed());
  CHECK_EQ(fake::code_of(s.plan->submit(*bound)), "lifetime");
  CHECK_THROWS(bound->set("x", all_of(s.x)), Error, "plan add is closed");
  CHECK_THROWS(s.bind(1), Error, "plan add is closed");
  CHECK_EQ(s.plan->ports().size(), size_t(2));
  CHECK_THROWS(s.rt->close(), Error, "runtime has 1 open plan and");
  CHECK(!s.rt->closed());
  second->close();
  s.rt->close();
  s.rt->close();
  CHECK_THROWS(Plan::compile_data(s.rt, add_plan(8, 1)), Error,
               "runtime is closed and must be open");
  s.x->close(), s.y->close();
  s.d->close();
}

TEST(test_fence_keeps_plan_and_buffers_alive) {
  FencePtr f;
  std::vector<uint32_t> out(8);
  auto owner = std::make_shared<int>(0);
  const std::weak_ptr<int> watch = owner;
  fake::ClosedGate gate;
  {
    Set s(add_plan(8, 2, true));
    s.y = s.d->wrap(out.data(), DType::U32, 8, true, std::move(owner), "out");
    f = s.plan->submit(*s.bind(5));
  }
  gate.wait_started();
  CHECK(!watch.expired());
  gate.open();
  CHECK(f->wait());
  CHECK_EQ(out[3], 14u);
  CHECK(watch.expired());
}

TEST(test_objects_may_go_in_any_order) {
  for (int order = 0; order < 6; ++order) {
    Set s(add_plan(8, 2));
    auto bound = s.bind(1);
    FencePtr f = s.plan->submit(*bound);
    std::function<void()> drop[] = {[&] { s.d.reset(), s.rt.reset(); }, [&] { s.plan.reset(); },
                                    [&] { bound.reset(), s.x.reset(), s.y.reset(); }};
    const int perm[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (const int i : perm[order]) drop[i]();
    CHECK(f->wait());
  }
}

TEST(test_missing_kernel_is_found_at_compile_and_counts_no_plan) {
  fake::PlanMaker m("odd");
  m.command("no_such_kernel", {}, {0, 1});
  const DevicePtr d = fake::open_threads(1);
  const RuntimePtr rt = Runtime::create(d);
  try {
    Plan::compile_data(rt, m.p);
    CHECK(!"compiled");
  } catch (const Error& e) {
    CHECK_EQ(int(e.kind), int(ErrorKind::internal));
    CHECK(std::strstr(e.what(), "no_such_kernel is missing from the table base"));
  }
  rt->close();
  d->close();
  CHECK_THROWS(Runtime::create(nullptr), Error, "device is missing");
  CHECK_THROWS(Runtime::create(d), Error, "closed");
}

TEST(test_counters_stand_still_after_warm_up) {
  Set s(add_plan(8, 2));
  CHECK_EQ(s.rt->counters().planned, 1);
  CHECK_EQ(s.rt->counters().pipelines, 1);
  const PlanPtr twin = Plan::compile_data(s.rt, add_plan(4, 1));
  CHECK_EQ(s.rt->counters().planned, 2);
  CHECK_EQ(s.rt->counters().pipelines, 1);
  const auto bound = s.bind(1);
  for (int i = 0; i < 5; ++i) CHECK(s.plan->submit(*bound)->wait());
  CHECK_EQ(s.rt->counters().planned, 2);
  CHECK_EQ(s.rt->counters().pipelines, 1);
  CHECK_EQ(s.rt->counters().built, 0);
}

TEST(test_each_failed_allocation_of_a_compile_leaves_everything_usable) {
  fake::PlanMaker m("big");
  const int x = m.port("x", PortKind::Input, DType::U32, {8});
  const int y = m.port("y", PortKind::Output, DType::U32, {1});
  const int base = m.scalar("base", ScalarKind::F32);
  const fake::Place t = m.arena(0, 1 << 21);
  m.command("copy", {m.slot(x, false), t}, {8, 1});
  m.command("sum", {t, m.slot(y, true)}, {8, 5});
  m.command("copy", {m.frequencies(base, 8), t}, {4, 1});
  const DevicePtr d = fake::open_threads(2);
  const RuntimePtr rt = Runtime::create(d);
  int failures = 0;
  for (int nth = 1;; ++nth) {
    fail_allocation(nth);
    try {
      Plan::compile_data(rt, m.p);
      break;
    } catch (const Error& e) {
      CHECK_EQ(e.code, "out_of_memory");
      CHECK(e.requested > 0 && std::strstr(e.what(), "plan big: "));
      ++failures;
    }
  }
  fail_allocation(0);
  CHECK_EQ(failures, 4);  // arena, shared scratch, the threads' scratch, one frequency table
  rt->close();
  d->close();
}
