// The thread pool: every chunk exactly once, whoever runs it; parked threads cost nothing.
#include "backends/cpu/pool.h"

#include <time.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include <algorithm>
#include <atomic>
#include <numeric>
#include <thread>
#include <vector>

#include "backends/cpu/isa.h"
#include "check.h"

using accel::Pool;

namespace {

struct Tally {
  std::vector<std::atomic<uint32_t>> hits;
  std::atomic<uint32_t> bad_thread{0};
  uint32_t threads;
  explicit Tally(uint32_t n, int threads) : hits(n), threads(uint32_t(threads)) {}
};
void hit(void* context, uint32_t chunk, uint32_t thread) {
  Tally& t = *static_cast<Tally*>(context);
  t.hits[chunk].fetch_add(1, std::memory_order_relaxed);
  if (thread >= t.threads) t.bad_thread = 1;
}
bool each_once(const Tally& t) {
  for (const auto& h : t.hits)
    if (h.load() != 1) return false;
  return t.bad_thread == 0;
}

double cpu_seconds() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}

}  // namespace

TEST(test_pool_runs_every_chunk_once) {
  for (const int threads : {1, 2, 3, 5}) {
    Pool pool(threads);
    pool.start();
    const Pool::Turn turn(pool);
    for (const uint32_t n : {1u, 2u, 3u, 7u, 64u, 1000u}) {
      for (int repeat = 0; repeat < 20; ++repeat) {
        Tally tally(n, threads);
        pool.run(n, hit, &tally);
        CHECK(each_once(tally));
      }
    }
  }
}

TEST(test_pool_takes_more_chunks_than_one_generation_holds) {
  Pool pool(2);
  pool.start();
  const Pool::Turn turn(pool);
  const uint32_t n = (1u << 20) + 5;
  Tally tally(n, 2);
  pool.run(n, hit, &tally);
  CHECK(each_once(tally));
}

TEST(test_pool_sees_plain_writes_of_the_dispatcher_and_gives_its_own_back) {
  // Plain memory on both sides: a missing ordering shows under the thread sanitizer.
  Pool pool(3);
  pool.start();
  const Pool::Turn turn(pool);
  struct Job {
    std::vector<uint32_t> in, out;
  } job;
  job.in.resize(97), job.out.resize(97);
  for (uint32_t round = 0; round < 2000; ++round) {
    for (uint32_t& v : job.in) v = round;
    pool.run(
        97,
        [](void* c, uint32_t i, uint32_t) {
          Job& j = *static_cast<Job*>(c);
          j.out[i] = j.in[i] + i;
        },
        &job);
    uint32_t wrong = 0;
    for (uint32_t i = 0; i < 97; ++i) wrong += job.out[i] != round + i;
    CHECK_EQ(wrong, 0u);
  }
}

TEST(test_pool_wakes_parked_threads) {
  Pool pool(2);
  pool.start();
  const Pool::Turn turn(pool);
  for (int i = 0; i < 5; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));  // longer than the spin
    Tally tally(8, 2);
    pool.run(8, hit, &tally);
    CHECK(each_once(tally));
  }
}

TEST(test_pool_fetches_any_range_and_runs_every_chunk_once) {
  Pool pool(2);
  pool.start();
  const Pool::Turn turn(pool);
  std::vector<char> memory(1 << 20);
  std::vector<Pool::Lines> lines(Pool::kRanges + 3, {memory.data(), 1 << 14});
  lines[0].count = 0;                                            // nothing
  lines[1].count = 1u << 30;                                     // more than a range holds
  lines[2].from = reinterpret_cast<const void*>(~uintptr_t(0));  // an address past a range's
  for (int i = 0; i < 200; ++i) {
    for (uint32_t t = 0; t < 2; ++t)
      pool.fetch_when_idle(t, lines.data(), i % 3 ? lines.size() : 0);
    Tally tally(9, 2);
    pool.run(9, hit, &tally);
    CHECK(each_once(tally));
  }
}

// As many threads as CPUs, and as many again that never rest: threads are put aside inside chunks,
// lend their CPUs and exchange them, and turns of two workers come in between.
TEST(test_pool_beside_busy_threads_runs_every_chunk_once) {
  const int threads = std::max(2, accel::usable_cpus());
  Pool pool(threads);
  pool.start();
  std::atomic<bool> stop{false};
  std::vector<std::thread> others;
  for (int t = 0; t < threads; ++t)
    others.emplace_back([&] {
      while (!stop.load(std::memory_order_relaxed)) {}
    });
  std::atomic<int> good{0};
  const auto worker = [&] {
    pool.enter_worker();
    for (int i = 0; i < 20; ++i) {
      const Pool::Turn turn(pool);
      for (int k = 0; k < 5; ++k) {
        Tally tally(32, threads);
        pool.run(32, hit, &tally);
        good += each_once(tally);
      }
    }
  };
  std::thread first(worker), second(worker);
  first.join();
  second.join();
  stop = true;
  for (std::thread& t : others) t.join();
  CHECK(good.load() == 200);
}

#if defined(__linux__)
// Threads that all share one CPU by somebody's mask stand still for each other all the time.
TEST(test_pool_leaves_a_mask_alone_that_somebody_else_has_set) {
  const int threads = accel::usable_cpus();
  Pool pool(threads);
  pool.start();
  std::atomic<int> outside{0};
  std::thread worker([&] {
    pool.enter_worker();
    cpu_set_t mask;
    sched_getaffinity(0, sizeof mask, &mask);
    const auto squeeze = [](void* context, uint32_t, uint32_t) {
      sched_setaffinity(0, sizeof(cpu_set_t), static_cast<cpu_set_t*>(context));
      const double end = cpu_seconds() + 2e-4;  // so that every thread takes a chunk
      while (cpu_seconds() < end) {}
    };
    for (int i = 0; i < 50; ++i) {
      const Pool::Turn turn(pool);
      pool.run(64, squeeze, &mask);
    }
    struct Seen {
      cpu_set_t mask;
      std::atomic<int>* outside;
    } seen{mask, &outside};
    const auto look = [](void* context, uint32_t, uint32_t) {
      const Seen& s = *static_cast<Seen*>(context);
      cpu_set_t now;
      sched_getaffinity(0, sizeof now, &now);
      *s.outside += !CPU_EQUAL(&now, &s.mask);
      const double end = cpu_seconds() + 2e-4;
      while (cpu_seconds() < end) {}
    };
    for (int i = 0; i < 400; ++i) {
      const Pool::Turn turn(pool);
      pool.run(uint32_t(i % 7 + 2), look, &seen);
    }
  });
  worker.join();
  CHECK(outside.load() == 0);
}
#endif

TEST(test_parked_pool_burns_nothing) {
  Pool pool(4);
  pool.start();
  {
    const Pool::Turn turn(pool);
    Tally tally(64, 4);
    pool.run(64, hit, &tally);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the spin is over
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  // Four spinning threads would use 200 ms or more even on one core; sleeping ones use none. 20 ms
  // is room for the sanitizers' own background thread.
  CHECK(cpu_seconds() - before < 0.02);
}

TEST(test_turns_come_one_at_a_time_in_order) {
  Pool pool(2);
  pool.start();
  int running = 0, overlaps = 0, total = 0;  // plain: the turn is what guards them
  const auto user = [&] {
    for (int i = 0; i < 200; ++i) {
      const Pool::Turn turn(pool);
      overlaps += ++running != 1;
      Tally tally(4, 2);
      pool.run(4, hit, &tally);
      if (!each_once(tally)) ++overlaps;
      if (i % 20 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
      ++total;
      --running;
    }
  };
  std::thread a(user), b(user);
  a.join(), b.join();
  CHECK_EQ(overlaps, 0);
  CHECK_EQ(total, 400);
}
