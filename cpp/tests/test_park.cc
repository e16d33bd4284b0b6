// Waits whose end is said to be far or near: who sleeps, who spins, and that no word is lost. Spins
// are a minute long here, so that a thread which should spin is never found asleep.
#include "check.h"
#include "exec/pace.h"
#include "exec/testing.h"
#include "exec/worker_queue.h"

using namespace accel;

namespace {

constexpr int64_t kMinute = 60000000000;

template <class Condition>
bool until(const Condition& condition) {
  const int64_t end = now_ns() + 20000000000;
  while (!condition() && now_ns() < end) std::this_thread::sleep_for(std::chrono::microseconds(50));
  return condition();
}

class Spinning : public WorkerHost {
 public:
  Spinning() : WorkerHost(0, 1 << 20) {}
  std::shared_ptr<void> allocate(int64_t, const std::string&) override { return nullptr; }
  void start() override {}
  void enter_worker() override {}
  int64_t spin_ns() const override { return kMinute; }
};

int64_t roused() {
  return end_counts().roused;
}

std::optional<Error> ok() {
  return std::nullopt;
}

}  // namespace

// ------------------------------------------------------------------------------------------------
// events

TEST(test_who_waits_for_what_is_far_sleeps_and_spins_once_it_is_near) {
  Event event;
  std::atomic<bool> set{false}, over{false};
  const int64_t before = roused();
  event.far();
  CHECK(event.is_far());
  std::thread waiter([&] {
    CHECK(event.wait([&] { return set.load(); }, -1, kMinute));
    over = true;
  });
  CHECK(until([&] { return event.asleep() == 1; }));
  event.near();
  CHECK(!event.is_far());
  CHECK(until([&] { return event.asleep() == 0 && roused() == before + 1; }));
  set = true;  // nobody is notified: only who spins sees it
  CHECK(until([&] { return over.load(); }));
  event.notify();
  waiter.join();
}

TEST(test_who_is_about_to_sleep_hears_that_it_is_near) {
  Event event;
  std::atomic<int> looks{0};
  std::atomic<bool> over{false};
  event.far();
  std::thread waiter([&] {
    // After the first look, and before the thread is counted among those who sleep.
    const auto ready = [&] {
      if (++looks == 1) event.near();
      return looks >= 4;
    };
    CHECK(event.wait(ready, -1, 0));
    over = true;
  });
  CHECK(until([&] { return over.load(); }));
  event.notify();
  waiter.join();
}

TEST(test_who_spins_goes_to_sleep_when_it_is_far) {
  Event event;
  std::atomic<bool> set{false};
  std::atomic<int> looks{0};
  std::thread waiter([&] {
    CHECK(event.wait(
        [&] {
          ++looks;
          return set.load();
        },
        -1, kMinute));
  });
  CHECK(until([&] { return looks > 100; }));
  CHECK_EQ(event.asleep(), 0);
  event.far();
  CHECK(until([&] { return event.asleep() == 1; }));
  set = true;
  event.notify();  // without near()
  waiter.join();
}

TEST(test_each_near_rouses_once_also_who_slept_when_nothing_was_far) {
  Event event;
  std::atomic<bool> set{false};
  const int64_t before = roused();
  std::thread waiter([&] { event.wait([&] { return set.load(); }, -1, 1); });
  CHECK(until([&] { return event.asleep() == 1; }));
  for (int i = 1; i <= 3; ++i) {
    event.near();
    CHECK(until([&] { return roused() == before + i && event.asleep() == 1; }));
  }
  set = true;
  event.notify();
  waiter.join();
}

TEST(test_no_word_of_what_is_near_is_lost) {
  Event event;
  std::atomic<int> set{0}, seen{0};
  constexpr int kRounds = 2000;
  std::thread waiter([&] {
    for (int i = 1; i <= kRounds; ++i) {
      event.wait([&] { return set.load() >= i; }, -1, kMinute);
      seen = i;
    }
  });
  for (int i = 1; i <= kRounds; ++i) {
    event.far();
    for (int turn = 0; turn < i % 64 * 16; ++turn) cpu_relax();
    event.near();
    set = i;
    if (until([&] { return seen == i; })) continue;
    CHECK(!"a thread sleeps although what it waits for is near");
    set = kRounds;
    event.notify();
    break;
  }
  waiter.join();
}

TEST(test_limits_and_polls_hold_while_it_is_far) {
  Event event;
  event.far();
  const auto never = [] { return false; };
  CHECK(!event.wait(never, 0.01, kMinute));
  CHECK(!event.wait(never, 0, kMinute));
  CHECK_THROWS(event.wait(never, -1, kMinute, [] { throw std::runtime_error("interrupted"); }),
               std::runtime_error, "interrupted");
  event.near();
  CHECK(!event.wait(never, 0.01, kMinute));
}

// ------------------------------------------------------------------------------------------------
// queues

TEST(test_waiters_and_the_worker_sleep_far_from_an_end_and_spin_near_it) {
  const auto host = std::make_shared<Spinning>();
  Worker worker(host);
  Done done;
  std::function<void()> near;
  std::atomic<bool> ran{false};
  const FencePtr fence = worker.enqueue(
      [&](Later& later) {
        done = later.take();
        near = later.far();
        ran = true;
        return ok();
      },
      true, {}, nullptr, "q");
  std::thread waiter([&] { CHECK(fence->wait()); });
  CHECK(until([&] { return ran.load(); }));
  CHECK(until([&] { return fence->asleep() == 1 && worker.asleep() == 1; }));
  near();
  CHECK(until([&] { return fence->asleep() == 0 && worker.asleep() == 0; }));
  done(std::nullopt);
  waiter.join();
  // Without a word of the next one the worker sleeps no more.
  CHECK(worker.enqueue([](Later&) { return ok(); }, true, {}, nullptr, "q")->wait());
  CHECK_EQ(worker.asleep(), 0);
  CHECK(worker.close("q"));
}

TEST(test_an_end_that_nobody_called_near_tells_all_the_same) {
  const auto host = std::make_shared<Spinning>();
  Worker worker(host);
  for (const bool fails : {false, true}) {
    Done done;
    std::atomic<bool> ran{false};
    const FencePtr fence = worker.enqueue(
        [&](Later& later) {
          done = later.take();
          (void)later.far();
          ran = true;
          return ok();
        },
        true, {}, nullptr, "q");
    CHECK(until([&] { return ran.load() && worker.asleep() == 1; }));
    std::thread waiter([&] {
      if (fails) CHECK_THROWS(fence->wait(), Error, "said no");
      else CHECK(fence->wait());
    });
    CHECK(until([&] { return fence->asleep() == 1; }));
    done(fails ? std::optional<Error>(device_error("the driver said no")) : std::nullopt);
    waiter.join();
    CHECK(until([&] { return worker.asleep() == 0; }));
  }
}

TEST(test_work_is_taken_and_stopped_while_the_worker_sleeps_far_from_an_end) {
  const auto host = std::make_shared<Spinning>();
  std::vector<Done> held;
  std::vector<FencePtr> fences;
  std::atomic<int> ran{0};
  {
    Worker worker(host);
    for (int i = 0; i < 3; ++i) {
      fences.push_back(worker.enqueue(
          [&](Later& later) {
            held.push_back(later.take());
            (void)later.far();
            ++ran;
            return ok();
          },
          true, {}, nullptr, "q"));
      CHECK(until([&] { return ran == i + 1 && worker.asleep() == 1; }));
    }
  }  // the thread has gone
  for (Done& done : held) done(std::nullopt);
  for (const FencePtr& fence : fences) CHECK(fence->wait());
}

// ------------------------------------------------------------------------------------------------
// usual times

TEST(test_the_usual_time_is_the_shorter_of_the_last_two) {
  Pace pace;
  CHECK_EQ(pace.usual(), 0);
  pace.saw(700);
  CHECK_EQ(pace.usual(), 0);
  pace.saw(500);
  CHECK_EQ(pace.usual(), 500);
  pace.saw(9000);
  CHECK_EQ(pace.usual(), 500);
  pace.saw(8000);
  CHECK_EQ(pace.usual(), 8000);
  pace.saw(30);
  CHECK_EQ(pace.usual(), 30);
}

TEST(test_sleep_ends_before_the_usual_end_and_its_naps_are_short) {
  constexpr int64_t kSpin = 2000000;
  for (const int64_t usual : {int64_t(0), int64_t(1), kSpin}) CHECK_EQ(doze_of(usual, kSpin).ns, 0);
  for (int64_t usual = kSpin + 1; usual < 20000000000; usual += usual / 7) {
    const Doze d = doze_of(usual, kSpin);
    CHECK(d.ns > 0 && d.nap_ns > 0);
    CHECK(usual - d.ns >= 300000 && usual - d.ns <= kSpin / 2);
    CHECK(d.nap_ns <= usual / 10 && d.nap_ns <= 50000000);
  }
  // A step of 5 ms: nine naps of half a millisecond, then 0.8 ms of spinning.
  CHECK_EQ(doze_of(5000000, kSpin).ns, 4200000);
  CHECK_EQ(doze_of(5000000, kSpin).nap_ns, 500000);
}

TEST(test_each_nap_begins_with_a_look) {
  int looks = 0;
  const auto third = [&] { return ++looks == 3; };
  CHECK(doze(now_ns(), {kMinute, 1000}, third));
  CHECK_EQ(looks, 3);
  looks = 0;
  CHECK(!doze(now_ns() - 2000, {1000, 1000}, third));
  CHECK_EQ(looks, 0);
  // No nap is shorter than asked for but the last.
  const auto never = [&] { return ++looks < 0; };
  CHECK(!doze(now_ns(), {20000000, 2000000}, never));
  CHECK(looks >= 1 && looks <= 10);
}
