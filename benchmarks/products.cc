// The CPU products, one row a line: bandwidth of one activation row (int8: of up to 16) as a
// percentage of what the same threads read, and multiply-adds of many rows as a percentage of what
// they multiply in registers, bytes where activations are, both probed in the same round. Usage:
// products [--threads N] [--rounds N] [--isa NAME]
// [--kernel TEXT] [--cpu-time] [--json]. Bits are checked before anything is timed. --cpu-time
// counts processor time, for one thread on a machine that is shared.
#include <cstdio>
#include <ctime>
#include <functional>

#include "backends/cpu/pool.h"
#include "tests/products_util.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace accel;
using namespace products;

namespace {

clockid_t clock_used = CLOCK_MONOTONIC;
double now() {
  timespec t;
  clock_gettime(clock_used, &t);
  return double(t.tv_sec) + double(t.tv_nsec) * 1e-9;
}
double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// ---------------------------------------------------------------- probes

constexpr int kLoops =
    3000000;  // some 30 ms a chunk: a shorter probe misses the clock that a longer one settles at

#if defined(__x86_64__)
__attribute__((target("avx512f"))) uint64_t read_512(const char* p, size_t bytes) {
  __m512i a[8] = {};
  for (size_t i = 0; i + 512 <= bytes; i += 512)
    for (size_t j = 0; j < 8; ++j)
      a[j] = _mm512_xor_si512(a[j], _mm512_loadu_si512(p + i + j * 64));
  for (int j = 1; j < 8; ++j) a[0] = _mm512_xor_si512(a[0], a[j]);
  uint64_t lanes[8];
  _mm512_storeu_si512(lanes, a[0]);
  return lanes[0];
}
__attribute__((target("avx2"))) uint64_t read_256(const char* p, size_t bytes) {
  __m256i a[8] = {};
  for (size_t i = 0; i + 256 <= bytes; i += 256)
    for (size_t j = 0; j < 8; ++j)
      a[j] = _mm256_xor_si256(a[j],
                              _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + i + j * 32)));
  for (int j = 1; j < 8; ++j) a[0] = _mm256_xor_si256(a[0], a[j]);
  return uint64_t(_mm256_extract_epi64(a[0], 0));
}
#define ACCEL_TWELVE(v, x)                                                                \
  v x ",%0\n" v x ",%1\n" v x ",%2\n" v x ",%3\n" v x ",%4\n" v x ",%5\n" v x ",%6\n" v x \
      ",%7\n" v x ",%8\n" v x ",%9\n" v x ",%10\n" v x ",%11\n"
__attribute__((target("avx512f"))) int64_t multiply_512() {
  __m512 a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{}, k{}, l{}, x{}, y{};
  for (int n = 0; n < kLoops; ++n)
    asm volatile(ACCEL_TWELVE("vfmadd231ps", " %12,%13")
                 : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i),
                   "+v"(j), "+v"(k), "+v"(l)
                 : "v"(x), "v"(y));
  return 12 * 32;
}
__attribute__((target("avx512f"))) int64_t multiply_bytes_512() {
  __m512i a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{}, k{}, l{}, x{}, y{};
  for (int n = 0; n < kLoops; ++n)
    asm volatile(ACCEL_TWELVE("vpdpbusd", " %12,%13")
                 : "+v"(a), "+v"(b), "+v"(c), "+v"(d), "+v"(e), "+v"(f), "+v"(g), "+v"(h), "+v"(i),
                   "+v"(j), "+v"(k), "+v"(l)
                 : "v"(x), "v"(y));
  return 12 * 128;
}
__attribute__((target("avx2,fma"))) int64_t multiply_256() {
  __m256 a{}, b{}, c{}, d{}, e{}, f{}, g{}, h{}, i{}, j{}, k{}, l{}, x{}, y{};
  for (int n = 0; n < kLoops; ++n)
    asm volatile(ACCEL_TWELVE("vfmadd231ps", " %12,%13")
                 : "+x"(a), "+x"(b), "+x"(c), "+x"(d), "+x"(e), "+x"(f), "+x"(g), "+x"(h), "+x"(i),
                   "+x"(j), "+x"(k), "+x"(l)
                 : "x"(x), "x"(y));
  return 12 * 16;
}
#endif

uint64_t read_plain(const char* p, size_t bytes) {
  uint64_t a[8] = {};
  for (size_t i = 0; i + 64 <= bytes; i += 64)
    for (size_t j = 0; j < 8; ++j) {
      uint64_t v;
      std::memcpy(&v, p + i + j * 8, 8);
      a[j] ^= v;
    }
  for (int j = 1; j < 8; ++j) a[0] ^= a[j];
  return a[0];
}
// Separate products and sums, as the base level has them: eight chains of four lanes.
int64_t multiply_plain() {
  float a[32] = {};
  for (int n = 0; n < kLoops; ++n) {
    for (float& v : a) v = v * 0.5f + 1.0f;
    asm volatile("" : : "r"(a) : "memory");
  }
  return 64;
}

struct Probe {
  uint64_t (*read)(const char*, size_t) = read_plain;
  int64_t (*multiply)() = multiply_plain;
  int64_t (*multiply_bytes)() = nullptr;  // null: as floats
  explicit Probe(const std::string& isa) {
#if defined(__x86_64__)
    if (isa == "avx512")
      read = read_512, multiply = multiply_512, multiply_bytes = multiply_bytes_512;
    if (isa == "avx2") read = read_256, multiply = multiply_256;
    if (!multiply_bytes) multiply_bytes = multiply;
#else
    (void)isa;
    multiply_bytes = multiply;
#endif
  }
};

// ---------------------------------------------------------------- running

template <class F>
void parallel(Pool& pool, uint32_t n, F& f) {
  if (n == 1) return f(0, 0);
  pool.run(
      n, [](void* c, uint32_t chunk, uint32_t thread) { (*static_cast<F*>(c))(chunk, thread); },
      &f);
}

struct Machine {
  const accel_cpu::KernelTable& table;
  Probe probe;
  Pool pool;
  Pool::Turn turn;
  Machine(const accel_cpu::KernelTable& t, int threads)
      : table(t), probe(t.isa), pool((threads)), turn((pool.start(), pool)) {}
  double read_gbs(const char* p, size_t bytes) {
    const uint32_t n = uint32_t(pool.threads()) * 16;
    const size_t part = bytes / n;
    std::atomic<uint64_t> all{0};
    auto f = [&](uint32_t c, uint32_t) { all.fetch_xor(probe.read(p + c * part, part)); };
    const double start = now();
    parallel(pool, n, f);
    return double(part) * n / (now() - start) / 1e9;
  }
  double multiply_gflops(bool bytes) {
    std::atomic<int64_t> operations{0};
    const auto multiply = bytes ? probe.multiply_bytes : probe.multiply;
    auto f = [&](uint32_t, uint32_t) { operations += multiply(); };
    const double start = now();
    parallel(pool, uint32_t(pool.threads()) * 2, f);
    return double(operations) * kLoops / (now() - start) / 1e9;
  }
};

// One kernel with its scratch; buffers may be swapped between calls.
struct Call {
  const accel_cpu::Kernel& kernel;
  ProductParams params;
  std::vector<void*> buffers;
  std::vector<char> shared, local;
  size_t stride;
  Call(Machine& m, const std::string& name, const ProductParams& p, std::vector<void*> b)
      : kernel(*products::kernel(m.table, name)),
        params(p),
        buffers(std::move(b)),
        shared(kernel.shared_bytes(&params) + 64),
        stride((kernel.local_bytes(&params) + 127) / 128 * 128) {
    local.resize(stride * size_t(m.pool.threads()) + 64);
  }
  static char* aligned(std::vector<char>& v) {
    return v.data() + (64 - uintptr_t(v.data()) % 64) % 64;
  }
  void run(Pool& pool) {
    const accel_cpu::KernelArgs args{buffers.data(), &params, nullptr, aligned(shared)};
    char* scratch = aligned(local);
    for (const accel_cpu::Phase& phase : kernel.phases) {
      const uint32_t n = phase.chunks(&params, uint32_t(pool.threads()));
      auto f = [&](uint32_t c, uint32_t t) { phase.run(&args, c, n, scratch + t * stride); };
      parallel(pool, n, f);
    }
  }
};

// ---------------------------------------------------------------- rows

struct Row {
  const char* kernel;
  char weight;  // '4', '8', or a float: 's' f32, 'f' f16, 'b' bf16
  unsigned M, N, K, group, zeros;
};
const Row kRows[] = {
    {"int4_matvec_nk_f16", '4', 1, 576, 576, 32, 0},
    {"int4_matvec_nk_f16", '4', 1, 1536, 576, 32, 0},
    {"int4_matvec_nk_f16", '4', 1, 576, 1536, 32, 0},
    {"int4_matvec_nk_f16", '4', 1, 192, 576, 32, 0},
    {"int4_matvec_nk_f16", '4', 1, 1536, 576, 32, 1},
    {"int4_matvec_nk_f16", '4', 1, 4096, 4096, 128, 1},
    {"int4_matvec_kn_f16", '4', 1, 1536, 576, 128, 1},
    {"quant_matmul_nk_f32", '8', 1, 49152, 576, 32, 0},
    {"quant_matmul_kn_f32", '8', 1, 1536, 576, 32, 0},
    {"matmul_nk_f32_f16", 'f', 1, 1536, 576, 0, 0},
    {"matmul_kn_f32_f16", 'f', 1, 1536, 576, 0, 0},
    {"matmul_nk_f32_f32", 's', 1, 4096, 4096, 0, 0},
    {"matmul_nk_f32_f16", 'f', 1, 4096, 4096, 0, 0},
    {"matmul_nk_f32_bf16", 'b', 1, 4096, 4096, 0, 0},
    {"matmul_kn_f32_f32", 's', 1, 4096, 4096, 0, 0},
    {"matmul_kn_f32_f16", 'f', 1, 4096, 4096, 0, 0},
    {"matmul_kn_f32_bf16", 'b', 1, 4096, 4096, 0, 0},
    {"int4_matvec_nk_f16", '4', 1, 4096, 4096, 32, 1},
    {"int4_matmul_nk_f16", '4', 512, 576, 576, 32, 0},
    {"int4_matmul_nk_f16", '4', 512, 192, 576, 32, 0},
    {"int4_matmul_nk_f16", '4', 512, 1536, 576, 32, 0},
    {"int4_matmul_nk_f16", '4', 512, 576, 1536, 32, 0},
    {"int4_matmul_nk_f16", '4', 512, 4096, 4096, 32, 0},
    {"int4_matmul_kn_f16", '4', 512, 1536, 576, 128, 1},
    {"quant_matmul_nk_f32", '8', 512, 1536, 576, 32, 0},
    {"matmul_nk_f32_f16", 'f', 512, 1536, 576, 0, 0},
    {"matmul_kn_f32_f16", 'f', 512, 1536, 576, 0, 0},
    {"matmul_nk_f32_f32", 's', 1024, 1024, 1024, 0, 0},
    {"matmul_kn_f32_f32", 's', 1024, 1024, 1024, 0, 0},
    {"matmul_nk_f32_f32", 's', 512, 1536, 576, 0, 0},
    {"matmul_kn_f32_f32", 's', 512, 1536, 576, 0, 0},
    {"int4_matmul_nk_f16", '4', 8, 1536, 576, 32, 0},
    {"int4_matvec_int8_f16", '4', 1, 576, 576, 32, 0},
    {"int4_matvec_int8_f16", '4', 1, 192, 576, 32, 0},
    {"int4_matvec_int8_f16", '4', 1, 1536, 576, 32, 0},
    {"int4_matvec_int8_f16", '4', 1, 576, 1536, 32, 0},
    {"int4_matvec_int8_f16", '4', 1, 1536, 576, 32, 1},
    {"int4_matvec_int8_f16", '4', 1, 4096, 4096, 32, 0},
    {"int4_matvec_int8_f16", '4', 1, 4096, 4096, 128, 1},
    {"quant_matmul_int8_f32", '8', 1, 49152, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 2, 1536, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 3, 1536, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 4, 1536, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 8, 1536, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 16, 576, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 16, 192, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 16, 1536, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 16, 576, 1536, 32, 0},
    {"quant_matmul_int8_f32", '8', 16, 49152, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 512, 576, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 512, 192, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 512, 1536, 576, 32, 0},
    {"int4_matmul_int8_f16", '4', 512, 576, 1536, 32, 0},
    {"int4_matmul_int8_f16", '4', 512, 4096, 4096, 128, 1},
    {"quant_matmul_int8_f32", '8', 512, 1536, 576, 32, 0},
};
bool is_float(const Row& r) {
  return r.weight != '4' && r.weight != '8';
}
DType float_type(const Row& r) {
  return r.weight == 's' ? DType::F32 : r.weight == 'b' ? DType::BF16 : DType::F16;
}

// The planes of one copy of a weight, sizes rounded up to lines.
struct Planes {
  size_t codes, scales, offsets, total;
  explicit Planes(const Row& r) {
    const size_t n = size_t(r.N) * r.K, line = 64;
    const auto up = [&](size_t b) { return (b + line - 1) / line * line; };
    codes = up(r.weight == '4' ? n / 2 : n * (r.weight == '8' ? 1 : r.weight == 's' ? 4 : 2));
    scales = r.group ? up(n / r.group * 2) : 0;
    offsets = r.weight == '4' ? scales : 0;
    total = codes + scales + offsets;
  }
};

void fill(const Row& r, const Planes& planes, char* p, Random& random) {
  for (size_t i = 0; i + 8 <= planes.codes; i += 8) {
    const uint64_t v = random.next();
    std::memcpy(p + i, &v, 8);
  }
  if (is_float(r))
    for (size_t i = 0; i < size_t(r.N) * r.K; ++i) put(float_type(r), p, i, random.uniform());
  const size_t groups = r.group ? size_t(r.N) * r.K / r.group : 0;
  for (size_t g = 0; g < groups; ++g) {
    put(DType::F16, p + planes.codes, g, 0.01f + 0.005f * random.uniform());
    if (planes.offsets)
      put(DType::F16, p + planes.codes + planes.scales, g, r.zeros ? 8.0f : -0.08f);
  }
}

float weight_at(const Level& level, const Row& r, const Planes& planes, const char* p, size_t i) {
  if (is_float(r)) return get(float_type(r), p, i);
  const float s = get(DType::F16, p + planes.codes, i / r.group);
  if (r.weight == '8') return s * float(int8_t(p[i]));
  const float offset = get(DType::F16, p + planes.codes + planes.scales, i / r.group);
  const float code = float(uint8_t(p[i / 2]) >> (4 * (i % 2)) & 15);
  if (!r.zeros) return level.multiply_add(s, code, offset);
  const volatile float centred = code - offset;
  return centred * s;
}

// Activations rounded to int8.
bool by_int8(const Row& r) {
  return std::string(r.kernel).find("_int8_") != std::string::npos;
}
bool is_nk(const Row& r) {
  return by_int8(r) || std::string(r.kernel).find("_nk_") != std::string::npos;
}
// Rows whose weight is read from memory every time: what they are compared with is bandwidth.
bool streams(const Row& r) {
  return r.M == 1 || (by_int8(r) && r.M <= 16);
}

float by_int8_at(const Level& level, const Row& r, const Planes& planes, const char* w,
                 const float* x, size_t n) {
  const size_t row = n * r.K, groups = r.K / r.group;
  const std::function<float(size_t)> scale = [&](size_t g) {
    return get(DType::F16, w + planes.codes, n * groups + g);
  };
  const std::function<float(size_t)> offset = [&](size_t g) {
    const float o = get(DType::F16, w + planes.codes + planes.scales, n * groups + g);
    return r.zeros ? -o * scale(g) : o;
  };
  const auto code = [&](size_t k) {
    const size_t i = row + k;
    return r.weight == '8' ? int(int8_t(w[i])) : int(uint8_t(w[i / 2]) >> (4 * (i % 2)) & 15);
  };
  return walk_int8(level, int8_blocks(x, r.K, r.group), code, scale,
                   r.weight == '4' ? &offset : nullptr);
}

// Some results of the last row against the slow walk.
bool right(const Row& r, const Level& level, const Planes& planes, const char* w, const float* x,
           const float* out) {
  std::vector<float> row(r.K);
  for (unsigned n = 0; n < r.N; n += r.N / 5 + 1) {
    for (unsigned k = 0; k < r.K; ++k)
      row[k] = weight_at(level, r, planes, w, is_nk(r) ? size_t(n) * r.K + k : size_t(k) * r.N + n);
    const float* last = x + size_t(r.M - 1) * r.K;
    const float want = by_int8(r)
                           ? by_int8_at(level, r, planes, w, last, n)
                           : (is_nk(r) ? walk_lane16 : walk_chain)(level, last, row.data(), r.K);
    if (!same(want, out[size_t(r.M - 1) * r.N + n]) || want == 0) return false;
  }
  return true;
}

void point(Call& call, const Row& r, const Planes& planes, char* w) {
  char* const scales = r.group ? w + planes.codes : nullptr;
  char* const offsets = r.weight == '4' ? w + planes.codes + planes.scales : nullptr;
  call.buffers[1] = w;
  if (scales) call.buffers[2] = scales;
  if (offsets)
    call.buffers[3] = r.zeros ? offsets : nullptr, call.buffers[4] = r.zeros ? nullptr : offsets;
}

struct Options {
  int threads = 0, rounds = 5;
  std::string isa, kernel;
  bool json = false, cpu_time = false;
};

// Weights of one activation row are copied until they fill more memory than the caches of a large
// machine, so that they are streamed; the probe reads the same memory.
constexpr size_t kStreamed = size_t(640) << 20;

bool measure(Machine& m, const Row& r, const Options& o, char* memory) {
  const Planes planes(r);
  const Level level{std::string(m.table.level) == "fma"};
  Random random;
  const size_t copies = streams(r) ? std::max<size_t>(1, kStreamed / planes.total) : 1;
  fill(r, planes, memory, random);
  for (size_t c = 1; c < copies; ++c) std::memcpy(memory + c * planes.total, memory, planes.total);
  std::vector<float> x(size_t(r.M) * r.K), out(size_t(r.M) * r.N);
  for (float& v : x) v = random.uniform();
  std::vector<void*> buffers = {x.data(), nullptr};
  buffers.resize(r.weight == '4' ? 5 : r.weight == '8' ? 3 : 2);
  buffers.push_back(out.data());
  Call call(m, r.kernel, {r.M, r.K, r.N, is_nk(r), r.group, r.zeros, by_int8(r) ? 3u : 0u, 1, 0},
            buffers);
  point(call, r, planes, memory);
  call.run(m.pool);
  if (!right(r, level, planes, memory, x.data(), out.data())) {
    std::printf("%s M %u N %u K %u: wrong result\n", r.kernel, r.M, r.N, r.K);
    return false;
  }
  std::vector<double> seconds, ratio, peak;
  for (int round = 0; round < o.rounds; ++round) {
    peak.push_back(streams(r) ? std::max(m.read_gbs(memory, copies * planes.total),
                                         m.read_gbs(memory, copies * planes.total))
                              : m.multiply_gflops(by_int8(r)));
    const size_t calls =
        streams(r) ? copies : std::max<size_t>(1, size_t(3e9) / (size_t(r.M) * r.N * r.K));
    const double start = now();
    for (size_t c = 0; c < calls; ++c) {
      point(call, r, planes, memory + c % copies * planes.total);
      call.run(m.pool);
    }
    seconds.push_back((now() - start) / double(calls));
    const double work = streams(r) ? double(planes.total) : 2.0 * r.M * r.N * r.K;
    ratio.push_back(100 * work / seconds.back() / 1e9 / peak.back());
  }
  const double work = streams(r) ? double(planes.total) : 2.0 * r.M * r.N * r.K;
  const char* unit = streams(r) ? "GB/s" : by_int8(r) ? "Gop/s" : "GFLOP/s";
  const double rate = work / median(seconds) / 1e9;
  std::printf(
      o.json
          ? "{\"kernel\": \"%s\", \"M\": %u, \"N\": %u, \"K\": %u, \"group\": %u, \"zeros\": %u, "
            "\"isa\": \"%s\", \"threads\": %d, \"us\": %.2f, \"rate\": %.1f, \"unit\": \"%s\", "
            "\"probe\": %.1f, \"percent\": %.0f}\n"
          : "%-22s M %3u N %5u K %4u g %3u z %u  %s x%d  %9.2f us  %6.1f %s  probe %.1f  %.0f%%\n",
      r.kernel, r.M, r.N, r.K, r.group, r.zeros, m.table.isa, m.pool.threads(),
      median(seconds) * 1e6, rate, unit, median(peak), median(ratio));
  std::fflush(stdout);
  return true;
}

bool parse(int argc, char** argv, Options& o) {
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    if (a == "--json") o.json = true;
    else if (a == "--cpu-time") o.cpu_time = true;
    else if (a == "--kernel" && i + 1 < argc) o.kernel = argv[++i];
    else if (a == "--threads" && i + 1 < argc) o.threads = std::atoi(argv[++i]);
    else if (a == "--rounds" && i + 1 < argc) o.rounds = std::atoi(argv[++i]);
    else if (a == "--isa" && i + 1 < argc) o.isa = argv[++i];
    else return false;
  }
  if (!o.threads) o.threads = o.cpu_time ? 1 : usable_cpus();
  return o.rounds >= 1 && (o.cpu_time ? o.threads == 1 : o.threads > 0);
}

}  // namespace

int main(int argc, char** argv) {
  Options o;
  if (!parse(argc, argv, o)) {
    std::fprintf(stderr,
                 "usage: products [--threads N] [--rounds N] [--isa NAME] [--kernel TEXT] "
                 "[--cpu-time] [--json]; "
                 "--cpu-time is for one thread\n");
    return 2;
  }
  if (o.cpu_time) clock_used = CLOCK_PROCESS_CPUTIME_ID;
  try {
    Machine machine(pick_table(o.isa), o.threads);
    std::vector<char> memory(kStreamed + (size_t(64) << 20));
    char* const aligned = memory.data() + (64 - uintptr_t(memory.data()) % 64) % 64;
    bool ok = true;
    for (const Row& r : kRows)
      if (std::strstr(r.kernel, o.kernel.c_str())) ok &= measure(machine, r, o, aligned);
    return ok ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "products: %s\n", e.what());
    return 1;
  }
}
