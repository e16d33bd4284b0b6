// Shared by the test and the benchmark of the products: guarded memory, kernels by name, and the
// slow walk of each accumulation order as plain scalar loops.
#pragma once
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"
#include "base/dtype.h"
#include "shared/params/product.h"

namespace products {

using accel::DType;

// Bytes that end right before a page that may not be touched, so that an over-read crashes. The
// start is aligned to nothing but what the size gives. Mappings are kept for the next of their
// size: making one is what a test waits for.
class Guarded {
 public:
  explicit Guarded(size_t bytes) : bytes_(bytes) {
    const size_t page = size_t(sysconf(_SC_PAGESIZE));
    mapped_ = (bytes + page - 1) / page * page + page;
    base_ = take(mapped_, page);
    data_ = base_ + mapped_ - page - bytes;
  }
  Guarded(Guarded&& o) noexcept
      : base_(o.base_), data_(o.data_), bytes_(o.bytes_), mapped_(o.mapped_) {
    o.base_ = nullptr;
  }
  Guarded(const Guarded&) = delete;
  ~Guarded() {
    if (base_) kept()[mapped_].push_back(base_);
  }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  static std::map<size_t, std::vector<char*>>& kept() {
    static thread_local std::map<size_t, std::vector<char*>> mappings;
    return mappings;
  }
  static char* take(size_t mapped, size_t page) {
    std::vector<char*>& free = kept()[mapped];
    if (!free.empty()) {
      char* base = free.back();
      free.pop_back();
      return base;
    }
    char* base = static_cast<char*>(
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    if (base == MAP_FAILED || mprotect(base + mapped - page, page, PROT_NONE)) std::abort();
    return base;
  }
  char* base_ = nullptr;
  char* data_ = nullptr;
  size_t bytes_ = 0, mapped_ = 0;
};

struct Random {
  uint64_t s = 88172645463325252ull;
  uint64_t next() { return s ^= s << 13, s ^= s >> 7, s ^= s << 17; }
  float uniform() { return float(next() >> 40) / float(1 << 23) - 1.0f; }
};

inline void put(DType t, void* p, size_t i, float v) {
  if (t == DType::F32) static_cast<float*>(p)[i] = v;
  else if (t == DType::F16) static_cast<uint16_t*>(p)[i] = accel::f16_from_f32(v);
  else static_cast<uint16_t*>(p)[i] = accel::bf16_from_f32(v);
}
inline float get(DType t, const void* p, size_t i) {
  if (t == DType::F32) return static_cast<const float*>(p)[i];
  if (t == DType::F16) return accel::f32_from_f16(static_cast<const uint16_t*>(p)[i]);
  return accel::f32_from_bf16(static_cast<const uint16_t*>(p)[i]);
}
inline Guarded floats(DType t, size_t count, Random& random, float scale = 1) {
  Guarded g(count * size_t(accel::size_of(t)));
  for (size_t i = 0; i < count; ++i) put(t, g.as<void>(), i, scale * random.uniform());
  return g;
}

// ---------------------------------------------------------------- the slow walks

struct Level {
  bool fused;
  float multiply_add(float a, float b, float c) const {
    if (fused) return std::fmaf(a, b, c);
    const volatile float product = a * b;
    return product + c;
  }
};

inline float walk_lane16(const Level& level, const float* x, const float* w, size_t K) {
  float a[16] = {};
  for (size_t k = 0; k < K; ++k) a[k % 16] = level.multiply_add(x[k], w[k], a[k % 16]);
  for (int h = 8; h; h /= 2)
    for (int i = 0; i < h; ++i) a[i] += a[i + h];
  return a[0];
}
inline float walk_chain(const Level& level, const float* x, const float* w, size_t K) {
  float a = 0;
  for (size_t k = 0; k < K; ++k) a = level.multiply_add(x[k], w[k], a);
  return a;
}

// An int4 bundle over a flat array.
struct Int4Data {
  Guarded codes, scales, offsets;
  DType planes;
  bool zeros;
  size_t group;
  float weight(const Level& level, size_t i) const {
    const float code = float(codes.as<uint32_t>()[i / 8] >> (4 * (i % 8)) & 15);
    const float s = get(planes, scales.as<void>(), i / group);
    const float offset = get(planes, offsets.as<void>(), i / group);
    if (!zeros) return level.multiply_add(s, code, offset);
    if (s == 0) return offset;
    const volatile float centred = code - offset;
    return centred * s;
  }
};
// Every fifth group is constant: its scale is 0.
inline Int4Data int4_data(size_t weights, size_t group, DType planes, bool zeros, Random& random) {
  const size_t groups = (weights + group - 1) / group, size = size_t(accel::size_of(planes));
  Int4Data d{Guarded((weights + 7) / 8 * 4),
             Guarded(groups * size),
             Guarded(groups * size),
             planes,
             zeros,
             group};
  for (size_t i = 0; i < (weights + 7) / 8; ++i)
    d.codes.as<uint32_t>()[i] = uint32_t(random.next() >> 20);
  for (size_t g = 0; g < groups; ++g) {
    const float s = random.next() % 5 ? 0.02f + 0.01f * random.uniform() : 0.0f;
    put(planes, d.scales.as<void>(), g, s);
    put(planes, d.offsets.as<void>(), g,
        zeros && s != 0 ? 7.3f + random.uniform() : 0.2f * random.uniform());
  }
  return d;
}

// ---------------------------------------------------------------- activations rounded to int8

struct Int8Block {
  float step = 0;
  int sum = 0;
  std::vector<int> q;
};
inline Int8Block int8_block(const float* x, size_t group) {
  Int8Block b;
  b.q.assign(group, 0);
  float most = 0;
  bool finite = true;
  for (size_t i = 0; i < group; ++i) {
    finite = finite && std::isfinite(x[i]);
    most = std::max(most, std::fabs(x[i]));
  }
  b.step = finite ? most / 127.0f : NAN;
  for (size_t i = 0; i < group && finite && b.step != 0; ++i) {
    b.q[i] = int(std::clamp(std::nearbyint(x[i] / b.step), -127.0f, 127.0f));
    b.sum += b.q[i];
  }
  return b;
}
inline std::vector<Int8Block> int8_blocks(const float* x, size_t K, size_t group) {
  std::vector<Int8Block> row;
  for (size_t k = 0; k < K; k += group) row.push_back(int8_block(x + k, group));
  return row;
}
// code(k), scale(g) and offset(g) of one row of the weight; offset is null without one.
template <class Code, class Plane>
float walk_int8(const Level& level, const std::vector<Int8Block>& row, const Code& code,
                const Plane& scale, const Plane* offset) {
  float a = 0;
  for (size_t g = 0; g < row.size(); ++g) {
    const Int8Block& b = row[g];
    int sum = 0;
    for (size_t i = 0; i < b.q.size(); ++i) sum += b.q[i] * code(g * b.q.size() + i);
    const volatile float step = scale(g) * b.step, plain = b.step * float(b.sum);
    a = level.multiply_add(step, float(sum), a);
    if (offset) a = level.multiply_add((*offset)(g), plain, a);
  }
  return a;
}

// ---------------------------------------------------------------- kernels by name

inline const accel_cpu::Kernel* kernel(const accel_cpu::KernelTable& table,
                                       const std::string& name) {
  for (const accel_cpu::Kernel* k : accel::kernels_of(table))
    if (name == k->name) return k;
  return nullptr;
}
inline std::vector<const accel_cpu::KernelTable*> tables() {
  std::vector<const accel_cpu::KernelTable*> usable;
  for (const accel_cpu::KernelTable* t : accel::built_tables())
    if (accel::machine_has(t->isa)) usable.push_back(t);
  return usable;
}

// Scratch of the size that the kernel asks for, aligned as the executor gives it, up to 63 bytes
// before the guard.
struct Scratch {
  Guarded memory;
  explicit Scratch(uint64_t bytes) : memory((bytes + 63) / 64 * 64) {
    std::memset(memory.as<void>(), 0xff, memory.bytes());  // NaN in every float
  }
};

// All chunks of both phases, last chunk first, so that none may rely on an earlier one.
template <class P>
void run_kernel(const accel_cpu::Kernel& k, const std::vector<void*>& buffers, const P& params,
                uint32_t threads, uint32_t n_chunks = 0) {
  const Scratch shared(k.shared_bytes ? k.shared_bytes(&params) : 0);
  const Scratch local(k.local_bytes ? k.local_bytes(&params) : 0);
  const accel_cpu::KernelArgs args{buffers.data(), &params, nullptr,
                                   shared.memory.template as<void>()};
  for (const accel_cpu::Phase& phase : k.phases) {
    if (!phase.run) continue;
    const uint32_t n = n_chunks ? n_chunks : phase.chunks(&params, threads);
    for (uint32_t c = n; c-- > 0;) phase.run(&args, c, n, local.memory.template as<void>());
  }
}

// Equal bits, or both NaN: payloads are never promised.
inline bool same(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::memcmp(&a, &b, 4) == 0;
}

}  // namespace products
