#include "backends/cpu/isa.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/error.h"

#if defined(__x86_64__) || defined(__i386__)
#define ACCEL_X86 1
#include <cpuid.h>
#endif
#if defined(__linux__)
#include <sched.h>
#endif

#ifdef ACCEL_HAS_base
extern "C" const accel_cpu::KernelTable accel_kernels_base;
#endif
#ifdef ACCEL_HAS_neon
extern "C" const accel_cpu::KernelTable accel_kernels_neon;
#endif
#ifdef ACCEL_HAS_avx2
extern "C" const accel_cpu::KernelTable accel_kernels_avx2;
#endif
#ifdef ACCEL_HAS_avx512
extern "C" const accel_cpu::KernelTable accel_kernels_avx512;
#endif

namespace accel {

std::vector<const accel_cpu::Kernel*> kernels_of(const accel_cpu::KernelTable& table) {
  std::vector<const accel_cpu::Kernel*> all;
  for (const accel_cpu::Kernel* const* group = table.groups; *group; ++group)
    for (const accel_cpu::Kernel* k = *group; k->name; ++k) all.push_back(k);
  return all;
}

const std::vector<const accel_cpu::KernelTable*>& built_tables() {
  static const std::vector<const accel_cpu::KernelTable*> tables = {
#ifdef ACCEL_HAS_base
      &accel_kernels_base,
#endif
#ifdef ACCEL_HAS_neon
      &accel_kernels_neon,
#endif
#ifdef ACCEL_HAS_avx2
      &accel_kernels_avx2,
#endif
#ifdef ACCEL_HAS_avx512
      &accel_kernels_avx512,
#endif
  };
  return tables;
}

std::string kernel_digest(const std::string& isa) {
  static const struct {
    const char* isa;
    const char* digest;
  } rows[] = {
#include "kernel_digests.inc"
  };
  for (const auto& row : rows)
    if (isa == row.isa) return row.digest;
  return "";
}

#ifdef ACCEL_X86
namespace {

struct Features {
  bool avx2 = false, avx512 = false;
};

// Register state that the operating system saves; a feature whose registers it does not save must
// not be used.
uint32_t saved_state() {
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

Features read_features() {
  Features f;
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return f;
  const bool osxsave = c >> 27 & 1, avx = c >> 28 & 1, fma = c >> 12 & 1, f16c = c >> 29 & 1;
  if (!osxsave || !avx) return f;
  const uint32_t state = saved_state();
  const bool ymm = (state & 0x06) == 0x06, zmm = (state & 0xe6) == 0xe6;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return f;
  f.avx2 = ymm && fma && f16c && (b >> 5 & 1);
  // avx512 f, dq, bw, vl in ebx; vbmi, gfni, vnni in ecx: what the avx512 objects are compiled for.
  const bool ebx = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);
  f.avx512 = f.avx2 && zmm && ebx && (c >> 1 & 1) && (c >> 8 & 1) && (c >> 11 & 1);
  return f;
}

}  // namespace
#endif

bool machine_has(const std::string& isa) {
  if (isa == "base") return true;
#ifdef ACCEL_X86
  static const Features features = read_features();
  if (isa == "avx2") return features.avx2;
  if (isa == "avx512") return features.avx512;
#endif
#ifdef __aarch64__
  if (isa == "neon") return true;
#endif
  return false;
}

const accel_cpu::KernelTable& pick_table(const std::string& forced) {
  const char* env = std::getenv("ACCEL_CPU_ISA");
  const std::string want = !forced.empty() ? forced : env ? env : "";
  const std::string source = !forced.empty() ? "isa" : "ACCEL_CPU_ISA";
  std::string usable;
  const accel_cpu::KernelTable* best = nullptr;
  for (const accel_cpu::KernelTable* table : built_tables()) {
    if (!machine_has(table->isa)) continue;
    if (want == table->isa) return *table;
    usable += (usable.empty() ? "" : ", ") + std::string(table->isa);
    best = table;
  }
  if (!want.empty())
    throw unsupported_error("open_cpu: " + source + " is " + want +
                            " and must be one that this machine runs: " + usable);
  ACCEL_CHECK(best);
  return *best;
}

// CPUs' worth of time that the control group grants, rounded up; 0 where it sets no limit.
static int quota_cpus() {
#if defined(__linux__)
  long long quota = 0, period = 0;
  if (std::FILE* f = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    const int n = std::fscanf(f, "%lld %lld", &quota, &period);  // "max 100000" where unlimited
    std::fclose(f);
    if (n == 2 && quota > 0 && period > 0) return int((quota + period - 1) / period);
  }
#endif
  return 0;
}

int usable_cpus() {
  int n = int(std::thread::hardware_concurrency());
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0) n = CPU_COUNT(&allowed);
#endif
  if (const int quota = quota_cpus()) n = std::min(n, quota);
  return std::max(n, 1);
}

std::string cpu_name() {
#ifdef ACCEL_X86
  unsigned words[12];
  bool all = true;
  for (unsigned i = 0; i < 3; ++i)
    all = all && __get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2],
                             &words[4 * i + 3]);
  if (all) {
    char text[49] = {};
    std::memcpy(text, words, 48);
    const std::string name = text + std::strspn(text, " ");
    return name.substr(0, name.find_last_not_of(' ') + 1);
  }
#endif
  utsname system{};
  return uname(&system) == 0 ? std::string(system.machine) + " CPU" : "CPU";
}

std::string cpu_vendor() {
#ifdef ACCEL_X86
  unsigned a, words[3];
  if (__get_cpuid(0, &a, &words[0], &words[2], &words[1]))
    return std::string(reinterpret_cast<char*>(words), 12);
#endif
#ifdef __APPLE__
  return "Apple";
#else
  return "unknown";
#endif
}

}  // namespace accel
