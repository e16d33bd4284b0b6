// What one empty dispatch of the thread pool takes, from the call to its return: one JSON object.
//   bench_pool [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "backends/cpu/pool.h"

using namespace accel;

namespace {

constexpr int kRounds = 20000;

void nothing(void*, uint32_t, uint32_t) {}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  if (threads < 1) {
    std::fprintf(stderr, "usage: bench_pool [threads]\n");
    return 2;
  }
  Pool pool(threads);
  pool.start();
  const Pool::Turn turn(pool);
  std::vector<double> us;
  for (int i = 0; i < kRounds; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    pool.run(uint32_t(threads), nothing, nullptr);
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    us.push_back(spent.count());
  }
  std::sort(us.begin(), us.end());
  std::printf(
      "{\"bench\": \"pool\", \"threads\": %d, \"dispatch_us\": %.3f, \"dispatch_us_p10\": %.3f, "
      "\"dispatch_us_p90\": %.3f}\n",
      threads, us[us.size() / 2], us[us.size() / 10], us[us.size() * 9 / 10]);
  return 0;
}
