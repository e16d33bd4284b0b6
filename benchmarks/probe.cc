// The ceilings of this machine at this moment: read bandwidth from memory and f32 multiply-add
// rate, for 1 to T threads. Independent of the library; the widest instruction set of the machine
// is chosen at run time.
//   bench_probe [threads] [milliseconds] [MiB of each thread]
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kPiece = size_t(8) << 20;
constexpr int kLoops = 100000;
volatile uint64_t sink;

double seconds_since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// Each kernel has twelve chains: enough to hide the latency of the unit.
#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t read_avx512(const char* p, size_t bytes) {
  __m512i a[8] = {};
  for (size_t o = 0; o < bytes; o += 512)
    for (int j = 0; j < 8; ++j) a[j] = _mm512_xor_si512(a[j], _mm512_load_si512(p + o + j * 64));
  for (int j = 1; j < 8; ++j) a[0] = _mm512_xor_si512(a[0], a[j]);
  asm volatile("" : "+v"(a[0]));
  return uint64_t(a[0][0]);
}
__attribute__((target("avx2"))) uint64_t read_avx2(const char* p, size_t bytes) {
  __m256i a[8] = {};
  for (size_t o = 0; o < bytes; o += 256)
    for (int j = 0; j < 8; ++j)
      a[j] = _mm256_xor_si256(a[j], _mm256_load_si256((const __m256i*)(p + o + j * 32)));
  for (int j = 1; j < 8; ++j) a[0] = _mm256_xor_si256(a[0], a[j]);
  asm volatile("" : "+v"(a[0]));
  return uint64_t(a[0][0]);
}
// Named variables rather than an array, so that no compiler keeps the chains in memory.
#define CHAINS(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define START(j) auto a##j = x * float(j);
#define TOTAL(j) total += a##j[0];
#define FMA512(j)                     \
  a##j = _mm512_fmadd_ps(x, y, a##j); \
  asm volatile("" : "+v"(a##j));
#define FMA256(j)                     \
  a##j = _mm256_fmadd_ps(x, y, a##j); \
  asm volatile("" : "+x"(a##j));
__attribute__((target("avx512f"))) uint64_t fma_avx512(int loops, float seed) {
  const __m512 x = _mm512_set1_ps(seed), y = _mm512_set1_ps(0.5f);
  CHAINS(START)
  for (int i = 0; i < loops; ++i) { CHAINS(FMA512) }
  float total = 0;
  CHAINS(TOTAL)
  return total > 0;
}
__attribute__((target("avx2,fma"))) uint64_t fma_avx2(int loops, float seed) {
  const __m256 x = _mm256_set1_ps(seed), y = _mm256_set1_ps(0.5f);
  CHAINS(START)
  for (int i = 0; i < loops; ++i) { CHAINS(FMA256) }
  float total = 0;
  CHAINS(TOTAL)
  return total > 0;
}
#endif

uint64_t read_base(const char* p, size_t bytes) {
  typedef uint64_t words __attribute__((vector_size(16)));
  words a[8] = {};
  for (size_t o = 0; o < bytes; o += 128)
    for (int j = 0; j < 8; ++j) a[j] ^= *(const words*)(p + o + j * 16);
  for (int j = 1; j < 8; ++j) a[0] ^= a[j];
  return a[0][0] ^ a[0][1];
}
uint64_t fma_base(int loops, float seed) {
  typedef float floats __attribute__((vector_size(16)));
  floats a[12] = {}, x = {seed, seed, seed, seed};
  for (int i = 0; i < loops; ++i)
    for (int j = 0; j < 12; ++j) a[j] = a[j] + x * 0.5f;
  float total = 0;
  for (int j = 0; j < 12; ++j) total += a[j][0];
  return total > 0;
}

struct Level {
  const char* name;
  int lanes;
  uint64_t (*read)(const char*, size_t);
  uint64_t (*fma)(int, float);
};
Level best_level() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return {"avx512", 16, read_avx512, fma_avx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return {"avx2", 8, read_avx2, fma_avx2};
#endif
  return {"base", 4, read_base, fma_base};
}

// Runs `work` on every thread until the time is over; returns units a second of all together.
template <class Work>
double rate(int threads, double limit, Work work) {
  std::vector<std::thread> all;
  std::vector<double> units(size_t(threads), 0.0);
  const auto begin = Clock::now();
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      while (seconds_since(begin) < limit) units[size_t(t)] += work(t);
    });
  for (auto& thread : all) thread.join();
  const double spent = seconds_since(begin);
  double total = 0;
  for (double u : units) total += u;
  return total / spent;
}

}  // namespace

int main(int argc, char** argv) {
  const int most = argc > 1 ? std::atoi(argv[1]) : int(std::thread::hardware_concurrency());
  const double limit = (argc > 2 ? std::atof(argv[2]) : 300) / 1e3;
  // A multiple of a piece, and beyond the caches.
  const size_t bytes = size_t(argc > 3 ? std::atoi(argv[3]) : 256) / 8 * kPiece;
  if (most < 1 || limit <= 0 || bytes == 0) {
    std::fprintf(stderr, "usage: bench_probe [threads] [milliseconds] [MiB of each thread]\n");
    return 2;
  }
  const Level level = best_level();
  std::vector<char*> memory;
  for (int t = 0; t < most; ++t) {
    memory.push_back(static_cast<char*>(std::aligned_alloc(4096, bytes)));
    if (!memory.back()) return 1;
    std::memset(memory.back(), t + 1, bytes);
  }
  std::printf("{\"bench\": \"probe\", \"level\": \"%s\", \"threads\": [", level.name);
  for (int threads = 1; threads <= most; ++threads) {
    std::vector<size_t> at(size_t(threads), 0);
    const double read = rate(threads, limit, [&](int t) {
      sink = level.read(memory[size_t(t)] + at[size_t(t)], kPiece);
      at[size_t(t)] = (at[size_t(t)] + kPiece) % bytes;
      return double(kPiece);
    });
    const double fma = rate(threads, limit, [&](int t) {
      sink = level.fma(kLoops, float(t + 1));
      return 2.0 * 12 * level.lanes * kLoops;
    });
    std::printf("%s{\"threads\": %d, \"read_gb_s\": %.2f, \"fma_gop_s\": %.1f}",
                threads > 1 ? ", " : "", threads, read / 1e9, fma / 1e9);
  }
  std::printf("]}\n");
  for (char* p : memory) std::free(p);
  return 0;
}
