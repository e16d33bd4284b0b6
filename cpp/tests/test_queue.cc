// Queues and fences: order, failure, loss, closing, threads that nobody may wait for.
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "exec/fork.h"
#include "exec/park.h"
#include "fake_plan.h"

using namespace accel;

namespace {

std::optional<Error> ok() {
  return std::nullopt;
}
Error some_error() {
  return device_error("the driver said no");
}
void nap(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
}

}  // namespace

TEST(test_fence_waits_with_timeout_and_polls) {
  Fence f;
  CHECK(!f.done());
  const int64_t start = now_ns();
  int polls = 0;
  CHECK(!f.wait(0.12, [&] { ++polls; }));
  CHECK(now_ns() - start >= 120000000);
  CHECK(polls >= 2);
  CHECK(!f.wait(0));
  CHECK_THROWS(f.wait(-1, [] { throw std::runtime_error("interrupted"); }), std::runtime_error,
               "interrupted");
  f.signal(std::nullopt);
  CHECK(f.done());
  CHECK(f.wait(0) && f.wait() && f.wait());
}

TEST(test_failed_fence_throws_each_time_and_knows_who_looked) {
  const FencePtr f = Fence::failed(some_error());
  CHECK(f->done());
  CHECK(!f->observed());
  CHECK_EQ(fake::code_of(f), "driver");
  CHECK(!f->observed());
  CHECK_THROWS(f->wait(), Error, "said no");
  CHECK(f->observed());
  CHECK_THROWS(f->wait(0.01), Error, "said no");
}

TEST(test_fence_calls_back_once_done) {
  Fence f;
  std::atomic<int> calls{0};
  f.on_done([&] { ++calls; });
  // A callback may use the fence: no lock is held.
  f.on_done([&] { calls += f.done() ? 10 : 1000; });
  std::thread t([&] { f.signal(std::nullopt); });
  f.wait();
  t.join();
  CHECK_EQ(calls.load(), 11);
  f.on_done([&] { ++calls; });
  CHECK_EQ(calls.load(), 12);
}

TEST(test_queue_runs_in_order_and_does_not_block_the_caller) {
  const DevicePtr d = fake::open_threads(1);
  const QueuePtr q = d->default_queue();
  std::vector<int> order;  // plain: one worker writes, wait() orders the read
  std::atomic<bool> go{false};
  std::vector<FencePtr> fences;
  fences.push_back(q->enqueue(
      [&] {
        while (!go) nap(1);
        return ok();
      },
      {}));
  for (int i = 0; i < 50; ++i)
    fences.push_back(q->enqueue(
        [&order, i] {
          order.push_back(i);
          return ok();
        },
        {}));
  CHECK(!fences.back()->done());
  go = true;
  CHECK(fences.back()->wait());
  for (const FencePtr& f : fences) CHECK(f->done());
  for (int i = 0; i < 50; ++i) CHECK_EQ(order[size_t(i)], i);
  const FenceStats s = fences.back()->stats();
  CHECK(s.queued_ns <= s.started_ns && s.started_ns <= s.finished_ns && s.queued_ns > 0);
  CHECK(d->default_queue() == q);
}

TEST(test_work_is_destroyed_before_its_fence_signals) {
  const DevicePtr d = fake::open_threads(1);
  for (int i = 0; i < 200; ++i) {
    auto token = std::make_shared<int>(1);
    std::weak_ptr<int> watch = token;
    const FencePtr f = d->default_queue()->enqueue([token = std::move(token)] { return ok(); }, {});
    f->wait();
    CHECK(watch.expired());
  }
}

TEST(test_queues_are_ordered_by_after_alone) {
  const DevicePtr d = fake::open_threads(1);
  const QueuePtr a = d->default_queue(), b = d->new_queue("b");
  std::atomic<bool> go{false};
  int value = 0;
  const FencePtr first = a->enqueue(
      [&] {
        while (!go) nap(1);
        value = 1;
        return ok();
      },
      {});
  const FencePtr second = b->enqueue(
      [&] {
        value = value * 10 + 2;
        return ok();
      },
      {first});
  nap(5);
  CHECK(!second->done());
  go = true;
  CHECK(second->wait());
  CHECK_EQ(value, 12);
}

TEST(p26_34_failed_fence_in_after_fails_the_submission_and_nothing_runs) {
  const DevicePtr d = fake::open_threads(1);
  const QueuePtr q = d->new_queue("q");
  std::atomic<bool> ran{false};
  const FencePtr bad = q->enqueue([] { return std::optional<Error>(some_error()); }, {});
  const FencePtr f = d->default_queue()->enqueue(
      [&] {
        ran = true;
        return ok();
      },
      {bad});
  CHECK_THROWS(f->wait(), Error, "said no");
  CHECK(!ran.load());
  const FencePtr next = d->default_queue()->enqueue(
      [&] {
        ran = true;
        return ok();
      },
      {});
  CHECK(next->wait());
  CHECK(ran.load());
}

TEST(test_exceptions_of_work_arrive_at_the_fence) {
  const DevicePtr d = fake::open_threads(1);
  const FencePtr f = d->default_queue()->enqueue(
      []() -> std::optional<Error> { throw std::runtime_error("oops"); }, {});
  CHECK_THROWS(f->wait(), Error, "oops");
  CHECK_EQ(int(f->error()->kind), int(ErrorKind::internal));
}

TEST(test_flush_waits_and_keeps_errors_with_their_fences) {
  const DevicePtr d = fake::open_threads(1);
  const QueuePtr q = d->new_queue("q");
  q->flush();
  std::atomic<int> n{0};
  for (int i = 0; i < 3; ++i)
    q->enqueue(
        [&] {
          nap(2);
          ++n;
          return ok();
        },
        {});
  const FencePtr bad = q->enqueue(
      [&] {
        ++n;
        return std::optional<Error>(some_error());
      },
      {});
  q->flush();
  CHECK_EQ(n.load(), 4);
  CHECK(bad->wait_quiet(1));
  CHECK(!bad->observed());
}

TEST(test_close_of_a_queue_refuses_work_in_flight) {
  const DevicePtr d = fake::open_threads(1);
  const QueuePtr q = d->new_queue("side");
  std::atomic<bool> go{false};
  const FencePtr f = q->enqueue(
      [&] {
        while (!go) nap(1);
        return ok();
      },
      {});
  q->enqueue([] { return ok(); }, {});
  CHECK_THROWS(q->close(), Error, "queue side has 2 submissions in flight");
  CHECK(!q->closed());
  go = true;
  q->flush();
  q->close();
  q->close();
  CHECK(q->closed());
  CHECK(f->wait());
  const FencePtr late = q->enqueue([] { return ok(); }, {});
  CHECK(late->done());
  CHECK_EQ(fake::code_of(late), "lifetime");
}

TEST(test_dropping_a_queue_with_work_in_flight_neither_waits_nor_cancels) {
  const DevicePtr d = fake::open_threads(1);
  QueuePtr q = d->new_queue("q");
  std::atomic<bool> go{false}, ran{false};
  const FencePtr f = q->enqueue(
      [&] {
        while (!go) nap(1);
        ran = true;
        return ok();
      },
      {});
  q.reset();
  CHECK(!f->done());
  go = true;
  CHECK(f->wait());
  CHECK(ran.load());
  d->close();  // the queue is gone: no child is left
}

TEST(test_dropping_everything_in_flight_ends_on_the_worker) {
  std::atomic<bool> go{false};
  FencePtr f;
  {
    const DevicePtr d = fake::open_threads(2);
    f = d->default_queue()->enqueue(
        [&] {
          while (!go) nap(1);
          return ok();
        },
        {});
  }
  go = true;  // the worker drops the last reference to the device
  CHECK(f->wait());
}

TEST(test_device_counts_its_children) {
  const DevicePtr d = fake::open_threads(1);
  const BufferPtr a = d->new_buffer(DType::F32, 4, "a");
  BufferPtr b = d->new_buffer(DType::F32, 4, "b");
  const QueuePtr q = d->new_queue("q");
  CHECK_THROWS(d->close(), Error, "3 live children (2 buffers, 1 queues");
  CHECK(!d->closed());
  b.reset();
  a->close();
  a->close();
  CHECK_THROWS(d->close(), Error, "1 live children");
  q->close();
  d->close();
  d->close();
  CHECK(d->closed());
  CHECK_THROWS(d->new_buffer(DType::F32, 4, ""), Error, "closed");
  CHECK_THROWS(d->new_queue("x"), Error, "closed");
}

TEST(test_lost_device_fails_every_outstanding_fence) {
  const DevicePtr d = fake::open_threads(1, 3);
  const QueuePtr q = d->default_queue();
  std::atomic<bool> go{false}, ran{false}, started{false};
  const FencePtr one = q->enqueue(
      [&] {
        started = true;
        while (!go) nap(1);
        return ok();
      },
      {});
  const FencePtr two = q->enqueue(
      [&] {
        ran = true;
        return ok();
      },
      {});
  while (!started) nap(1);
  const FencePtr three = d->new_queue("other")->enqueue(
      [&] {
        ran = true;
        return ok();
      },
      {});
  CHECK(three->done());
  go = true;
  for (const FencePtr& f : {one, two, three})
    CHECK_THROWS(f->wait(), Error, "lost at submission 3");
  CHECK(!ran.load());
  CHECK_EQ(fake::code_of(three), "lost");
  const FencePtr four = q->enqueue([] { return ok(); }, {});
  CHECK_THROWS(four->wait(), Error, "lost");
  CHECK_THROWS(d->new_buffer(DType::F32, 1, ""), Error, "lost");
  d->close();
}

TEST(test_threads_race_submit_flush_and_close) {
  const DevicePtr d = fake::open_threads(2);
  const QueuePtr q = d->new_queue("raced");
  std::atomic<int> ran{0}, accepted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        const FencePtr f = q->enqueue(
            [&] {
              ++ran;
              return ok();
            },
            {});
        if (!(f->done() && f->error())) ++accepted;
        if (i % 16 == 0) q->flush();
      }
    });
  threads.emplace_back([&] {
    for (int i = 0; i < 400; ++i) {
      try {
        q->close();
        break;
      } catch (const Error& e) {
        if (e.code != "lifetime") ++ran;
      }
      std::this_thread::yield();
    }
  });
  for (std::thread& t : threads) t.join();
  q->flush();
  CHECK_EQ(ran.load(), accepted.load());
}

#ifndef ACCEL_TEST_TSAN  // the sanitizer refuses threads after a fork
TEST(test_child_of_a_fork_is_refused_and_drops_its_objects) {
  DevicePtr d = fake::open_threads(2);
  QueuePtr q = d->new_queue("q");
  BufferPtr b = d->new_buffer(DType::F32, 1 << 19, "b");
  std::atomic<bool> go{false};
  const FencePtr busy = q->enqueue(
      [&] {
        while (!go) nap(1);
        return ok();
      },
      {});
  const RuntimePtr rt = Runtime::create(d);
  PlanPtr plan = Plan::compile_data(rt, fake::add_plan(8, 2));
  const pid_t child = fork();
  if (child == 0) {
    int wrong = 0;
    const auto refused = [&](const std::function<void()>& call) {
      try {
        call();
        ++wrong;
      } catch (const Error& e) {
        if (e.code != "lost" || !std::strstr(e.what(), "spawn")) ++wrong;
      }
    };
    refused([&] { d->new_buffer(DType::F32, 4, ""); });
    refused([&] { d->close(); });
    refused([&] { d->default_queue(); });
    refused([&] { q->flush(); });
    refused([&] { q->close(); });
    refused([&] { b->close(); });
    refused([&] { (void)busy->wait(); });
    refused([&] { (void)busy->done(); });
    refused([&] { plan->close(); });
    refused([&] { plan->submit(BindingMap{}, ScalarMap{})->wait(); });
    refused([&] { plan->bind({}, {}); });
    refused([&] { fake::open({}); });
    refused([&] { enumerate_devices(); });
    plan.reset(), b.reset(), q.reset(), d.reset();
    _exit(wrong);
  }
  int status = -1;
  for (int i = 0; i < 1000 && waitpid(child, &status, WNOHANG) == 0; ++i) nap(10);
  CHECK_EQ(status, 0);
  go = true;
  CHECK(busy->wait());
  CHECK(!forked());
}
#endif

// ------------------------------------------------------------------------------------------------
// work that goes on

TEST(test_device_work_overlaps_and_ends_in_order) {
  const DevicePtr d = fake::open_threads(1);
  const QueuePtr q = d->new_queue("q");
  std::vector<Done> held(3);
  std::atomic<int> started{0};
  std::vector<FencePtr> fences;
  for (size_t i = 0; i < 3; ++i)
    fences.push_back(q->enqueue_device(
        [&, i](Later& later) {
          held[i] = later.take();
          ++started;
          return ok();
        },
        {}));
  while (started < 3) nap(1);  // all of them, although none has ended
  const FencePtr host = q->enqueue(
      [&] {
        ++started;
        return ok();
      },
      {});
  const FencePtr after = q->enqueue_device([](Later&) { return ok(); }, {fences[1]});
  nap(5);
  CHECK_EQ(started.load(), 3);
  CHECK_THROWS(q->close(), Error, "5 submissions in flight");
  held[2](std::nullopt);
  held[1](some_error());
  nap(5);
  for (const FencePtr& f : fences) CHECK(!f->done());
  held[0](std::nullopt);
  CHECK(fences[2]->wait());
  CHECK(fences[0]->done() && fences[0]->wait());
  CHECK_EQ(fake::code_of(fences[1]), "driver");
  CHECK(host->wait());
  CHECK_EQ(started.load(), 4);
  CHECK_THROWS(after->wait(), Error, "said no");
  held.clear();
  q->flush();
  q->close();
}

TEST(test_what_fails_at_once_signals_behind_work_that_goes_on) {
  const DevicePtr d = fake::open_threads(1);
  const QueuePtr q = d->default_queue();
  Done held;
  std::atomic<bool> started{false};
  const FencePtr first = q->enqueue_device(
      [&](Later& later) {
        held = later.take();
        started = true;
        return ok();
      },
      {});
  const FencePtr second =
      q->enqueue_device([](Later&) { return std::optional<Error>(some_error()); }, {});
  while (!started) nap(1);
  nap(5);
  CHECK(!second->done());
  std::thread end([&] {
    nap(5);
    held(std::nullopt);
  });
  q->flush();
  CHECK(first->done() && second->done());
  end.join();
  CHECK_EQ(fake::code_of(second), "driver");
}

TEST(test_work_may_end_before_it_returns_and_fail_after_it_took_later) {
  const DevicePtr d = fake::open_threads(1);
  const QueuePtr q = d->default_queue();
  auto token = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = token;
  const FencePtr early = q->enqueue_device(
      [token = std::move(token)](Later& later) {
        later.take()(std::nullopt);
        nap(2);
        return *token ? ok() : some_error();
      },
      {});
  CHECK(early->wait());
  CHECK(watched.expired());
  const FencePtr thrown = q->enqueue_device(
      [](Later& later) -> std::optional<Error> {
        later.take()(std::nullopt);
        throw std::runtime_error("late");
      },
      {});
  CHECK_THROWS(thrown->wait(), Error, "a submission threw: late");
}

TEST(test_a_queue_that_nobody_holds_ends_on_the_devices_thread) {
  const DevicePtr d = fake::open_threads(1);
  Done held;
  std::atomic<bool> started{false};
  const FencePtr f = d->new_queue("dropped")->enqueue_device(
      [&](Later& later) {
        held = later.take();
        started = true;
        return ok();
      },
      {});
  while (!started) nap(1);
  std::thread device([&] { held(std::nullopt); });
  CHECK(f->wait());
  device.join();
  held = nullptr;
  d->close();
}
