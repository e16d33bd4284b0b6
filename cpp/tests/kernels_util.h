// Runs one CPU kernel as the executor does, for the tests of the kernel tables.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backends/cpu/isa.h"
#include "backends/cpu/kernel_api.h"
#include "check.h"

namespace kernels_util {
using accel_cpu::Kernel;
using accel_cpu::KernelArgs;
using accel_cpu::KernelTable;

// Tables that this build and this machine have.
inline std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> have;
  for (const KernelTable* t : accel::built_tables())
    if (accel::machine_has(t->isa)) have.push_back(t);
  return have;
}
inline const Kernel& find(const KernelTable& table, const std::string& name) {
  for (const Kernel* k : accel::kernels_of(table))
    if (name == k->name) return *k;
  check::fail(__FILE__, __LINE__, std::string(table.isa) + " has no kernel " + name);
  std::abort();
}

inline uint32_t bits_of(float x) {
  return std::bit_cast<uint32_t>(x);
}
inline float float_of(uint32_t x) {
  return std::bit_cast<float>(x);
}

// Deterministic values: a multiplicative generator, [0, 2^32).
struct Random {
  uint64_t state;
  explicit Random(uint64_t seed) : state(seed * 0x9E3779B97F4A7C15ull + 1) {}
  uint32_t next() {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return uint32_t(state >> 33) ^ uint32_t(state >> 11);
  }
  float unit() { return float(next() >> 8) * 0x1p-24f; }
  float between(float lo, float hi) { return lo + (hi - lo) * unit(); }
};

// Memory whose elements start `shift` bytes past an aligned address, between guard bytes that must
// survive.
struct Guarded {
  static constexpr size_t kGuard = 128;
  std::vector<uint8_t> all;
  size_t bytes, at;
  Guarded(size_t bytes_, size_t shift, uint8_t fill = 0xa5)
      : all(bytes_ + 2 * kGuard + 64, fill), bytes(bytes_) {
    const size_t start = (64 - reinterpret_cast<uintptr_t>(all.data()) % 64) % 64;
    at = start + kGuard / 2 + shift;
  }
  void* data() { return all.data() + at; }
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(data());
  }
  bool intact(uint8_t fill = 0xa5) const {
    for (size_t i = 0; i < all.size(); ++i)
      if ((i < at || i >= at + bytes) && all[i] != fill) return false;
    return true;
  }
  template <class T>
  std::vector<T> values() {
    std::vector<T> v(bytes / sizeof(T));
    std::memcpy(v.data(), data(), bytes);
    return v;
  }
};

// n_chunks 0: what the kernel asks for with `threads`. Chunks run in descending order, so that none
// leans on another.
inline void run(const Kernel& k, const std::vector<void*>& bufs, const void* params,
                const std::vector<uint32_t>& scalars, uint32_t n_chunks, uint32_t threads = 1) {
  const auto aligned = [](uint64_t bytes) {
    return std::unique_ptr<uint8_t, void (*)(void*)>(
        static_cast<uint8_t*>(std::aligned_alloc(64, (bytes + 64) / 64 * 64)), std::free);
  };
  const uint64_t shared_bytes = k.shared_bytes ? k.shared_bytes(params) : 0;
  const uint64_t local_bytes = k.local_bytes ? k.local_bytes(params) : 0;
  auto shared = aligned(shared_bytes), local = aligned(local_bytes);
  std::memset(shared.get(), 0xff, shared_bytes);
  std::memset(local.get(), 0xff, local_bytes);
  const KernelArgs args = {bufs.data(), params, scalars.data(), shared.get()};
  for (const accel_cpu::Phase& phase : k.phases) {
    if (!phase.run) break;
    const uint32_t own = phase.chunks(params, threads);
    CHECK(own >= 1);
    const uint32_t n = n_chunks && &phase == &k.phases[0] ? n_chunks
                       : n_chunks && own > 1              ? n_chunks
                                                          : own;
    for (uint32_t c = n; c-- > 0;) phase.run(&args, c, n, local.get());
  }
}

// ---------------------------------------------------------------- one case over all tables

using Bytes = std::vector<uint8_t>;
template <class T>
Bytes bytes_of(const std::vector<T>& v) {
  Bytes b(v.size() * sizeof(T));
  if (!b.empty()) std::memcpy(b.data(), v.data(), b.size());
  return b;
}
template <class T>
std::vector<T> values_of(const Bytes& b) {
  std::vector<T> v(b.size() / sizeof(T));
  if (!b.empty()) std::memcpy(v.data(), b.data(), b.size());
  return v;
}

enum class Kind { bytes, f32, f16 };  // of the output: NaN payloads are not compared
inline bool same(const Bytes& a, const Bytes& b, Kind kind) {
  if (a.size() != b.size()) return false;
  if (kind == Kind::bytes) return a == b;
  const auto is_nan = [kind](uint32_t x) {
    return kind == Kind::f32 ? (x & 0x7fffffff) > 0x7f800000 : (x & 0x7fff) > 0x7c00;
  };
  const size_t size = kind == Kind::f32 ? 4 : 2;
  for (size_t i = 0; i < a.size(); i += size) {
    uint32_t x = 0, y = 0;
    std::memcpy(&x, &a[i], size);
    std::memcpy(&y, &b[i], size);
    if (x != y && !(is_nan(x) && is_nan(y))) return false;
  }
  return true;
}

// Floats in the two levels' ways: fma rounds once, base twice.
struct Level {
  bool fused;
  float fma(float a, float b, float c) const { return fused ? std::fmaf(a, b, c) : a * b + c; }
};
inline float tree16(const float* lane) {
  float t[16];
  std::memcpy(t, lane, sizeof t);
  for (int h = 8; h >= 1; h /= 2)
    for (int i = 0; i < h; ++i) t[i] = t[i] + t[i + h];
  return t[0];
}

struct KernelCase {
  std::string kernel;
  std::vector<Bytes> in;  // operands before the output
  Bytes out;              // its first contents; a state keeps what is not written
  const void* params = nullptr;
  std::vector<uint32_t> scalars;
  Kind kind = Kind::f32;
  bool out_first = false;  // the written operand is slot 0
  size_t element = 4;      // alignment of the operands
};

inline Bytes run_case(const KernelTable& table, const KernelCase& c, uint32_t n_chunks,
                      uint32_t threads, size_t shift) {
  std::vector<std::unique_ptr<Guarded>> memory;
  std::vector<void*> bufs;
  const auto add = [&](const Bytes& b) {
    memory.push_back(std::make_unique<Guarded>(b.size(), shift));
    if (!b.empty()) std::memcpy(memory.back()->data(), b.data(), b.size());
    bufs.push_back(b.empty() ? nullptr : memory.back()->data());  // null: absent
  };
  if (c.out_first) add(c.out);
  for (const Bytes& b : c.in) add(b);
  if (!c.out_first) add(c.out);
  run(find(table, c.kernel), bufs, c.params, c.scalars, n_chunks, threads);
  for (const auto& m : memory) CHECK(m->intact());
  Guarded& out = *memory[c.out_first ? 0 : memory.size() - 1];
  size_t i = 0;
  for (const Bytes& b : c.in) {  // operands are only read
    Guarded& m = *memory[(c.out_first ? 1 : 0) + i++];
    CHECK(b.empty() || std::memcmp(m.data(), b.data(), b.size()) == 0);
  }
  return out.values<uint8_t>();
}

// Runs the case in every table, for many numbers of chunks and addresses: equal bits everywhere,
// equal bits between tables of a level, and the bits of `expected` where it is given. Returns the
// result of each table.
inline std::vector<Bytes> check_case(const KernelCase& c,
                                     const std::function<Bytes(const Level&)>& expected = nullptr) {
  std::vector<Bytes> results;
  const Bytes* fused = nullptr;
  const auto all = tables();
  results.reserve(all.size());
  for (const KernelTable* table : all) {
    const bool fma = std::string(table->level) == "fma";
    results.push_back(run_case(*table, c, 1, 1, 0));
    const Bytes& first = results.back();
    const auto say = [&](const std::string& what) {
      check::fail(__FILE__, __LINE__, std::string(table->isa) + " " + c.kernel + ": " + what);
    };
    for (uint32_t n : {2u, 3u, 7u, 0u})
      for (size_t shift : {c.element, size_t(3) * c.element, size_t(60)})
        if (!same(first, run_case(*table, c, n, 16, shift), c.kind))
          say("other bits with " + std::to_string(n) + " chunks");
    if (expected && !same(first, expected(Level{fma}), c.kind))
      say("other bits than the plain loop");
    if (fma && fused && !same(*fused, first, c.kind))
      say("other bits than another table of its level");
    if (fma) fused = &first;
  }
  return results;
}

}  // namespace kernels_util
