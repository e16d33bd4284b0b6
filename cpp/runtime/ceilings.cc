#include "runtime/ceilings.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace accel {
namespace {

using Clock = std::chrono::steady_clock;
constexpr size_t kPiece = size_t(8) << 20;
constexpr int kLoops = 100000;
constexpr int kChains = 12;
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

// ---------------------------------------------------------------- int8
#if defined(__x86_64__)
#define ZERO512(j) __m512i a##j = _mm512_setzero_si512();
#define ZERO256(j) __m256i a##j = _mm256_setzero_si256();
#define SUM(j) total += uint64_t(a##j[0]);
#define DOT512(j)                         \
  a##j = _mm512_dpbusd_epi32(a##j, u, s); \
  asm volatile("" : "+v"(a##j));
#define DOT256(j)                                                                    \
  a##j = _mm256_add_epi32(a##j, _mm256_madd_epi16(_mm256_maddubs_epi16(u, s), one)); \
  asm volatile("" : "+x"(a##j), "+x"(u));
__attribute__((target("avx512f,avx512vnni"))) uint64_t dot_vnni(int loops) {
  const __m512i u = _mm512_set1_epi8(3), s = _mm512_set1_epi8(-2);
  CHAINS(ZERO512)
  for (int i = 0; i < loops; ++i) { CHAINS(DOT512) }
  uint64_t total = 0;
  CHAINS(SUM)
  return total;
}
__attribute__((target("avx2"))) uint64_t dot_avx2(int loops) {
  __m256i u = _mm256_set1_epi8(3);
  const __m256i s = _mm256_set1_epi8(-2), one = _mm256_set1_epi16(1);
  CHAINS(ZERO256)
  for (int i = 0; i < loops; ++i) { CHAINS(DOT256) }
  uint64_t total = 0;
  CHAINS(SUM)
  return total;
}

// Six tiles of sums, one of each operand: enough to hide the latency of the unit.
constexpr int kTileChains = 6;
// Statements, since the compiler's own macros are no expressions.
#define TILES(F) \
  F(0);          \
  F(1);          \
  F(2);          \
  F(3);          \
  F(4);          \
  F(5);
#define TILE_DOT(j) _tile_dpbssd(j, 6, 7)
__attribute__((target("amx-tile,amx-int8"))) uint64_t dot_amx(int loops) {
  alignas(64) unsigned char shape[64] = {1};  // palette 1; then bytes of a row and rows, by tile
  alignas(64) static const signed char zeros[1024] = {};
  for (int t = 0; t < 8; ++t) shape[16 + 2 * t] = 64, shape[48 + t] = 16;
  asm volatile("" : : "r"(shape) : "memory");
  _tile_loadconfig(shape);
  TILES(_tile_zero)
  _tile_loadd(6, zeros, 64);
  _tile_loadd(7, zeros, 64);
  for (int i = 0; i < loops; ++i) { TILES(TILE_DOT) }
  _tile_release();
  return uint64_t(loops);
}
// The processor has int8 tiles and the system grants their registers to this process.
bool tiles_granted() {
#if defined(__linux__)
  unsigned a, b, c, d;
  constexpr unsigned kTile = 1u << 24, kInt8 = 1u << 25;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & kTile) || !(d & kInt8)) return false;
  constexpr long kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
#else
  return false;
#endif
}
#endif

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

struct Int8Unit {
  const char* name;
  double operations;  // of one loop
  uint64_t (*dot)(int);
};
Int8Unit best_int8() {
#if defined(__x86_64__)
  if (tiles_granted()) return {"amx", 2.0 * kTileChains * 16 * 16 * 64, dot_amx};
  if (__builtin_cpu_supports("avx512vnni")) return {"vnni", 2.0 * kChains * 64, dot_vnni};
  if (__builtin_cpu_supports("avx2")) return {"avx2", 2.0 * kChains * 32, dot_avx2};
#endif
  return {"none", 0, nullptr};
}

// Runs `work` on every thread until the time is over; returns units a second of all together.
template <class Work>
double rate(int threads, double limit, Work work) {
  std::vector<std::thread> all;
  std::vector<double> units(size_t(threads), 0.0);
  const auto begin = Clock::now();
  const auto run = [&](int t) {
    double done = 0;
    do { done += work(t); } while (seconds_since(begin) < limit);
    units[size_t(t)] = done;
  };
  for (int t = 1; t < threads; ++t) all.emplace_back(run, t);
  run(0);
  for (auto& thread : all) thread.join();
  const double spent = seconds_since(begin);
  double total = 0;
  for (double u : units) total += u;
  return total / spent;
}

struct Free {
  void operator()(char* p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, Free>;

Memory touched(size_t bytes, int value) {
  Memory memory(static_cast<char*>(std::aligned_alloc(4096, bytes)));
  if (!memory) throw std::bad_alloc();
  std::memset(memory.get(), value, bytes);
  return memory;
}

}  // namespace

Ceilings measure_ceilings(int threads, double seconds, size_t bytes_of_a_thread) {
  const size_t bytes = (bytes_of_a_thread + kPiece - 1) / kPiece * kPiece;
  const Level level = best_level();
  const Int8Unit unit = best_int8();
  std::vector<Memory> memory;
  for (int t = 0; t < threads; ++t) memory.push_back(touched(bytes, t + 1));
  std::vector<size_t> at(size_t(threads), 0);
  const double read = rate(threads, seconds, [&](int t) {
    sink = level.read(memory[size_t(t)].get() + at[size_t(t)], kPiece);
    at[size_t(t)] = (at[size_t(t)] + kPiece) % bytes;
    return double(kPiece);
  });
  const double fma = rate(threads, seconds, [&](int t) {
    sink = level.fma(kLoops, float(t + 1));
    return 2.0 * kChains * level.lanes * kLoops;
  });
  const double dot = !unit.dot ? 0 : rate(threads, seconds, [&](int) {
    sink = unit.dot(kLoops / 10);
    return unit.operations * (kLoops / 10);
  });
  return {level.name, unit.name, read / 1e9, fma / 1e9, dot / 1e9};
}

}  // namespace accel
