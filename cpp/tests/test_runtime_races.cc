// Threads that submit, bind and close at once, and every allocation of a submission failing in
// turn.
#include <cstdlib>
#include <new>

#include "check.h"
#include "fake_plan.h"

using namespace accel;
using fake::add_plan;
using fake::all_of;
using fake::words;

// The nth allocation of the thread that armed it fails; sanitizer builds keep their own allocator.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) && \
    !(defined(__has_feature) && __clang__)
#define FAILING_NEW 1
static thread_local int64_t t_fail_in = 0;
static void* take(size_t n) {
  if (t_fail_in > 0 && --t_fail_in == 0) throw std::bad_alloc();
  if (void* p = std::malloc(n ? n : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(size_t n) {
  return take(n);
}
void* operator new[](size_t n) {
  return take(n);
}
void operator delete(void* p) noexcept {
  std::free(p);
}
void operator delete[](void* p) noexcept {
  std::free(p);
}
void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
void operator delete[](void* p, size_t) noexcept {
  std::free(p);
}
#endif

TEST(p26_04_racing_submits_give_correct_results_or_clean_refusals) {
  const DevicePtr d = fake::open_threads(2);
  const RuntimePtr rt = Runtime::create(d);
  const PlanPtr plan = Plan::compile_data(rt, add_plan(64, 4));
  std::atomic<int> good{0}, refused{0}, wrong{0};
  const auto user = [&](uint32_t id) {
    const BufferPtr x = d->new_buffer(DType::U32, 64, "x"), y = d->new_buffer(DType::U32, 64, "y");
    for (uint32_t i = 0; i < 64; ++i) words(x)[i] = 1000 * id + i;
    const auto bound = plan->bind({{"x", all_of(x)}, {"y", all_of(y)}}, {{"k", u32(0)}});
    for (uint32_t round = 1; round <= 300; ++round) {
      bound->set_scalar("k", u32(round));
      const FencePtr f =
          round % 3 ? plan->submit(*bound)
                    : plan->submit({{"x", all_of(x)}, {"y", all_of(y)}}, {{"k", u32(round)}});
      try {
        f->wait();
        ++good;
        for (uint32_t i = 0; i < 64; ++i) wrong += words(y)[i] != 1000 * id + i + round;
      } catch (const Error& e) { ++(e.code == "in_flight" ? refused : wrong); }
    }
  };
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 3; ++t) threads.emplace_back(user, t + 1);
  for (std::thread& t : threads) t.join();
  CHECK_EQ(wrong.load(), 0);
  CHECK(good.load() > 0);
  CHECK_EQ(good.load() + refused.load(), 900);
}

TEST(p26_34_two_queues_share_the_threads_and_give_the_bits_of_one) {
  const DevicePtr d = fake::open_threads(2);
  const RuntimePtr rt = Runtime::create(d);
  std::atomic<int> wrong{0};
  const auto user = [&](uint32_t id) {
    const QueuePtr q = d->new_queue("q");
    const PlanPtr plan = Plan::compile_data(rt, add_plan(256, 8));
    const BufferPtr a = d->new_buffer(DType::U32, 256, "a"),
                    b = d->new_buffer(DType::U32, 256, "b");
    // Two bindings in turn: what one wrote the other reads, without a copy.
    const std::shared_ptr<Bindings> turn[2] = {
        plan->bind({{"x", all_of(a)}, {"y", all_of(b)}}, {{"k", u32(id)}}),
        plan->bind({{"x", all_of(b)}, {"y", all_of(a)}}, {{"k", u32(id)}})};
    for (int i = 0; i < 200; ++i) plan->submit(*turn[i % 2], q)->wait();
    for (uint32_t i = 0; i < 256; ++i) wrong += words(a)[i] != 200 * id;
  };
  std::thread one(user, 3), two(user, 5);
  one.join(), two.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST(test_close_of_plan_buffer_and_runtime_races_submits) {
  for (int round = 0; round < 60; ++round) {
    const DevicePtr d = fake::open_threads(2);
    const RuntimePtr rt = Runtime::create(d);
    const PlanPtr plan = Plan::compile_data(rt, add_plan(16, 2));
    const BufferPtr x = d->new_buffer(DType::U32, 16, "x"), y = d->new_buffer(DType::U32, 16, "y");
    std::atomic<bool> go{false};
    std::atomic<int> wrong{0}, ready{0};
    const auto submitter = [&] {
      const auto bound = plan->bind({{"x", all_of(x)}, {"y", all_of(y)}}, {{"k", u32(7)}});
      ++ready;
      while (!go) std::this_thread::yield();
      for (int i = 0; i < 20; ++i) {
        const FencePtr f = plan->submit(*bound);
        f->wait_quiet();
        const auto e = f->error();
        if (e && e->code != "lifetime" && e->code != "in_flight") ++wrong;
      }
    };
    std::thread a(submitter), b(submitter);
    std::thread closer([&] {
      while (!go) std::this_thread::yield();
      const BufferPtr other = d->new_buffer(DType::U32, 1, "other");
      other->close();  // moves the generation that submits look at
      if (round % 2) plan->close();
      for (bool done = false; !done;) {
        try {
          x->close();
          done = true;
        } catch (const Error& e) {
          if (e.code != "lifetime") ++wrong;
        }
      }
    });
    while (ready < 2) std::this_thread::yield();
    go = true;
    a.join(), b.join(), closer.join();
    CHECK_EQ(wrong.load(), 0);
    plan->close();
    rt->close();
    y->close();
    d->close();
  }
}

TEST(p26_25_compile_races_close_of_the_runtime) {
  for (int round = 0; round < 50; ++round) {
    const DevicePtr d = fake::open_threads(1);
    const RuntimePtr rt = Runtime::create(d);
    std::atomic<int> wrong{0};
    std::atomic<bool> go{false};
    PlanPtr plan;
    std::thread compiler([&] {
      while (!go) std::this_thread::yield();
      try {
        plan = Plan::compile_data(rt, add_plan(8, 1));
      } catch (const Error& e) {
        if (e.code != "lifetime") ++wrong;
      }
    });
    bool closed = false;
    go = true;
    try {
      rt->close();
      closed = true;
    } catch (const Error& e) {
      if (!std::strstr(e.what(), "1 open plan")) ++wrong;
    }
    compiler.join();
    // Never both: a plan on a closed runtime.
    if (closed == (plan != nullptr)) ++wrong;
    CHECK_EQ(wrong.load(), 0);
  }
}

#ifdef FAILING_NEW
TEST(test_each_failed_allocation_of_bind_set_and_submit_changes_nothing) {
  const DevicePtr d = fake::open_threads(2);
  const RuntimePtr rt = Runtime::create(d);
  const PlanPtr plan = Plan::compile_data(rt, add_plan(8, 2));
  const BufferPtr x = d->new_buffer(DType::U32, 8, "x"), y = d->new_buffer(DType::U32, 8, "y"),
                  z = d->new_buffer(DType::U32, 8, "z");
  const BindingMap map{{"x", all_of(x)}, {"y", all_of(y)}}, change{{"y", all_of(z)}};
  const ScalarMap scalars{{"k", u32(1)}};
  const auto bound = plan->bind(map, scalars);
  CHECK(plan->submit(*bound)->wait());
  const auto drive = [&](const std::function<void()>& call) {
    int failures = 0;
    for (int nth = 1; nth < 500; ++nth) {
      t_fail_in = nth;
      try {
        call();
        t_fail_in = 0;
        return failures;
      } catch (const std::bad_alloc&) {
        t_fail_in = 0;
        ++failures;
      }
      words(y)[1] = 0;
      CHECK(plan->submit(*bound)->wait());  // the slot is free and the bindings are as they were
      CHECK_EQ(words(y)[1], 1u);
    }
    return -1;
  };
  CHECK(drive([&] { plan->bind(map, scalars); }) > 3);
  FencePtr f;
  CHECK(drive([&] { f = plan->submit(*bound); }) >= 2);
  CHECK(f->wait());
  CHECK(drive([&] { f = plan->submit(map, scalars); }) > 3);
  CHECK(f->wait());
  CHECK(drive([&] { bound->update(change, scalars); }) > 0);
  CHECK(plan->submit(*bound)->wait());
  CHECK_EQ(words(z)[1], 1u);
}
#endif
