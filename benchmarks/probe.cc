// The ceilings of this machine at this moment, for 1 to T threads.
//   bench_probe [threads] [milliseconds] [MiB of each thread]
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "runtime/ceilings.h"

int main(int argc, char** argv) {
  const int most = argc > 1 ? std::atoi(argv[1]) : int(std::thread::hardware_concurrency());
  const double limit = (argc > 2 ? std::atof(argv[2]) : 300) / 1e3;
  const int mib = argc > 3 ? std::atoi(argv[3]) : 256;
  if (most < 1 || limit <= 0 || mib < 1) {
    std::fprintf(stderr, "usage: bench_probe [threads] [milliseconds] [MiB of each thread]\n");
    return 2;
  }
  for (int threads = 1; threads <= most; ++threads) {
    const accel::Ceilings c = accel::measure_ceilings(threads, limit, size_t(mib) << 20);
    if (threads == 1)
      std::printf("{\"bench\": \"probe\", \"flags\": \"" ACCEL_FLAGS
                  "\", \"level\": \"%s\", \"int8_unit\": \"%s\", \"threads\": [",
                  c.level.c_str(), c.int8_unit.c_str());
    std::printf(
        "%s{\"threads\": %d, \"read_gb_s\": %.2f, \"fma_gop_s\": %.1f, \"int8_gop_s\": %.1f}",
        threads > 1 ? ", " : "", threads, c.read_gb_s, c.fma_gop_s, c.int8_gop_s);
  }
  std::printf("]}\n");
  return 0;
}
