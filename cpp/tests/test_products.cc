// The matrix products of every kernel table, bit for bit against the slow walk of their registered
// order.
#include <functional>
#include <map>
#include <thread>

#include "ops/opdef.h"
#include "tests/check.h"
#include "tests/products_util.h"

using namespace accel;
using namespace products;

static const size_t kK[] = {1, 7, 16, 31, 32, 33, 64, 96, 128, 160, 576};
static const size_t kN[] = {1, 3, 4, 5, 16, 33, 64};
static const size_t kM = 17;
static const std::pair<DType, DType> kPairs[] = {{DType::F32, DType::F32},
                                                 {DType::F32, DType::F16},
                                                 {DType::F32, DType::BF16},
                                                 {DType::F16, DType::F16},
                                                 {DType::F16, DType::BF16}};

static const char* order_name(bool nk) {
  return nk ? "nk" : "kn";
}
static Level level_of(const accel_cpu::KernelTable& t) {
  return {std::string(t.level) == "fma"};
}

// Activations that f16 represents, in both types, with both zeros among them.
struct Rows {
  size_t M, K;
  Guarded f32, f16;
  Rows(size_t m, size_t k, Random& random) : M(m), K(k), f32(m * k * 4), f16(m * k * 2) {
    for (size_t i = 0; i < m * k; ++i) {
      const uint64_t pick = random.next() % 16;
      const float v = pick == 0 ? 0.0f : pick == 1 ? -0.0f : random.uniform();
      f16.as<uint16_t>()[i] = f16_from_f32(v);
      f32.as<float>()[i] = f32_from_f16(f16.as<uint16_t>()[i]);
    }
  }
  void* as(DType t) const { return t == DType::F32 ? f32.as<void>() : f16.as<void>(); }
  const float* row(size_t m) const { return f32.as<float>() + m * K; }
};

// The product over widened weights w [N][K], row by row.
static std::vector<float> walk(const Level& level, bool nk, const Rows& x,
                               const std::vector<float>& w, size_t N) {
  std::vector<float> out(x.M * N);
  for (size_t m = 0; m < x.M; ++m)
    for (size_t n = 0; n < N; ++n)
      out[m * N + n] = (nk ? walk_lane16 : walk_chain)(level, x.row(m), w.data() + n * x.K, x.K);
  return out;
}

struct Product {
  std::string kernel;
  std::vector<void*> buffers;  // the result is appended
  size_t M, K, N;
  bool nk;
  const float* want;  // [M, N] of the first M rows
};

template <class P>
static void expect(const accel_cpu::KernelTable& table, const Product& p, P params,
                   uint32_t n_chunks) {
  const accel_cpu::Kernel* k = kernel(table, p.kernel);
  if (!k) return check::fail(__FILE__, __LINE__, "no kernel " + p.kernel + " in " + table.isa);
  const Guarded out(p.M * p.N * 4);
  std::memset(out.as<void>(), 0xff, out.bytes());
  std::vector<void*> buffers = p.buffers;
  buffers.push_back(out.as<void>());
  params.M = unsigned(p.M), params.K = unsigned(p.K), params.N = unsigned(p.N), params.nk = p.nk;
  run_kernel(*k, buffers, params, 2, n_chunks);
  for (size_t i = 0; i < p.M * p.N; ++i)
    if (!same(out.as<float>()[i], p.want[i]))
      return check::fail(__FILE__, __LINE__,
                         std::string(table.isa) + " " + p.kernel + " M " + std::to_string(p.M) +
                             " K " + std::to_string(p.K) + " N " + std::to_string(p.N) +
                             " chunks " + std::to_string(n_chunks) + ": out[" + std::to_string(i) +
                             "] is " + check::show(out.as<float>()[i]) + " and must be " +
                             check::show(p.want[i]));
}

// Every M with the kernel's own chunks, some with chunks by hand.
template <class P>
static void expect_all_rows(const accel_cpu::KernelTable& table, Product p, const P& params) {
  for (p.M = 1; p.M <= kM; ++p.M) expect(table, p, params, 0);
  for (const size_t m : {size_t(1), size_t(5), kM})
    for (const uint32_t chunks : {1u, 2u, 3u, 7u, 64u}) {
      p.M = m;
      expect(table, p, params, chunks);
    }
}

template <class F>
static void for_shapes(F f) {
  for (const size_t K : kK)
    for (const size_t N : kN) f(K, N);
  for (const size_t K : {900, 1664}) f(K, 5);  // several slices
}

static std::vector<float> widened(DType t, const Guarded& w, bool nk, size_t K, size_t N) {
  std::vector<float> flat(K * N);
  for (size_t n = 0; n < N; ++n)
    for (size_t k = 0; k < K; ++k)
      flat[n * K + k] = get(t, w.as<void>(), nk ? n * K + k : k * N + n);
  return flat;
}

static void float_products(const accel_cpu::KernelTable& table, bool nk) {
  Random random;
  for_shapes([&](size_t K, size_t N) {
    const Rows x(kM, K, random);
    const Guarded bias = floats(DType::F32, N, random);
    for (const DType t : {DType::F32, DType::F16, DType::BF16}) {
      const Guarded w = floats(t, K * N, random);
      const std::vector<float> want = walk(level_of(table), nk, x, widened(t, w, nk, K, N), N);
      std::vector<float> with_bias = want;
      for (size_t i = 0; i < with_bias.size(); ++i) with_bias[i] += bias.as<float>()[i % N];
      for (const auto& [xt, wt] : kPairs) {
        if (wt != t) continue;
        const std::string types =
            std::string("_") + order_name(nk) + "_" + name_of(xt) + "_" + name_of(wt);
        expect_all_rows(table,
                        {"matmul" + types, {x.as(xt), w.as<void>()}, 0, K, N, nk, want.data()},
                        ProductParams{});
        Product linear{"linear" + types, {x.as(xt), w.as<void>(), bias.as<void>()}, kM, K, N, nk,
                       with_bias.data()};
        expect(table, linear, ProductParams{}, 0);
        linear.M = 1;
        expect(table, linear, ProductParams{}, 0);
        linear.buffers[2] = nullptr;
        linear.want = want.data();
        expect(table, linear, ProductParams{}, 0);
      }
    }
  });
}

TEST(p26_16_float_products_follow_lane16) {
  for (const auto* t : tables()) float_products(*t, true);
}
TEST(p26_16_float_products_follow_chain) {
  for (const auto* t : tables()) float_products(*t, false);
}

static void int8_products(const accel_cpu::KernelTable& table, bool nk) {
  Random random;
  for_shapes([&](size_t K, size_t N) {
    const Rows x(kM, K, random);
    const Guarded q(K * N), scales = floats(DType::F16, (K * N + 31) / 32, random, 0.01f);
    for (size_t i = 0; i < K * N; ++i) q.as<int8_t>()[i] = int8_t(random.next() >> 30);
    std::vector<float> w(K * N);
    for (size_t n = 0; n < N; ++n)
      for (size_t k = 0; k < K; ++k) {
        const size_t i = nk ? n * K + k : k * N + n;
        w[n * K + k] = get(DType::F16, scales.as<void>(), i / 32) * float(q.as<int8_t>()[i]);
      }
    const std::vector<float> want = walk(level_of(table), nk, x, w, N);
    for (const char* variant : {"nk_", "nk_any_", "kn_"}) {
      if ((variant[0] == 'n') != nk || (std::string(variant) == "nk_" && K % 32)) continue;
      for (const DType xt : {DType::F32, DType::F16})
        expect_all_rows(table,
                        {std::string("quant_matmul_") + variant + name_of(xt),
                         {x.as(xt), q.as<void>(), scales.as<void>()},
                         0,
                         K,
                         N,
                         nk,
                         want.data()},
                        ProductParams{});
    }
  });
}

TEST(int8_products_equal_the_product_over_dequantised_weights) {
  for (const auto* t : tables())
    for (const bool nk : {true, false}) int8_products(*t, nk);
}

static void int4_product(const accel_cpu::KernelTable& table, bool nk, const Rows& x, size_t N,
                         const Int4Data& d) {
  const Level level = level_of(table);
  const size_t K = x.K;
  std::vector<float> w(K * N);
  for (size_t n = 0; n < N; ++n)
    for (size_t k = 0; k < K; ++k) w[n * K + k] = d.weight(level, nk ? n * K + k : k * N + n);
  const std::vector<float> want = walk(level, nk, x, w, N);
  ProductParams params{};
  params.group = unsigned(d.group), params.zeros = d.zeros;
  void* const offsets = d.offsets.as<void>();
  for (const char* variant : {"nk_", "nk_any_", "kn_"}) {
    if ((variant[0] == 'n') != nk || (std::string(variant) == "nk_" && K % d.group)) continue;
    Product p{"int4_matmul_" + std::string(variant) + name_of(d.planes),
              {x.as(DType::F32), d.codes.as<void>(), d.scales.as<void>(),
               d.zeros ? offsets : nullptr, d.zeros ? nullptr : offsets},
              0,
              K,
              N,
              nk,
              want.data()};
    expect_all_rows(table, p, params);
    p.kernel = "int4_matvec_" + std::string(variant) + name_of(d.planes);
    p.M = 1;
    expect(table, p, params, 0);
  }
}

static void int4_products(const accel_cpu::KernelTable& table, size_t group, bool zeros) {
  Random random;
  for_shapes([&](size_t K, size_t N) {
    const Rows x(kM, K, random);
    for (const DType planes : {DType::F16, DType::BF16, DType::F32})
      for (const bool nk : {true, false})
        int4_product(table, nk, x, N, int4_data(K * N, group, planes, zeros, random));
  });
}

TEST(int4_products_with_zeros_equal_the_product_over_dequantised_weights) {
  for (const auto* t : tables())
    for (const size_t group : {32, 64, 128}) int4_products(*t, group, true);
}
TEST(int4_products_with_biases_equal_the_product_over_dequantised_weights) {
  for (const auto* t : tables())
    for (const size_t group : {32, 64, 128}) int4_products(*t, group, false);
}

// Kernels for few rows and for many give the same bits.
TEST(a_product_of_many_rows_holds_the_bits_of_few) {
  const size_t K = 1664, N = 7, M = 34;
  for (const auto* t : tables()) {
    Random random;
    const Rows x(M, K, random);
    const Int4Data d = int4_data(K * N, 64, DType::F16, false, random);
    std::vector<float> w(K * N);
    for (size_t i = 0; i < K * N; ++i) w[i] = d.weight(level_of(*t), i);
    const std::vector<float> want = walk(level_of(*t), true, x, w, N);
    ProductParams params{};
    params.group = 64;
    for (size_t m = 18; m <= M; ++m)
      for (const uint32_t chunks : {0u, 2u})
        expect(*t,
               {"int4_matmul_nk_f16",
                {x.as(DType::F32), d.codes.as<void>(), d.scales.as<void>(), nullptr,
                 d.offsets.as<void>()},
                m,
                K,
                N,
                true,
                want.data()},
               params, chunks);
  }
}

// From 256 rows on a tile may take one lane after another; columns fill a block, panels and vectors
// of it or not, rows of x stand where they are or packed, and a bias is added at the end.
TEST(a_product_of_many_rows_follows_lane16) {
  const size_t M = 259;
  for (const auto* t : tables())
    for (const auto& [K, N] :
         {std::pair<size_t, size_t>{256, 5}, {300, 70}, {576, 133}, {1024, 64}, {1028, 9}}) {
      Random random;
      const Rows x(M, K, random);
      const Guarded bias = floats(DType::F32, N, random);
      for (const auto& [xt, wt] : kPairs) {
        const Guarded w = floats(wt, K * N, random);
        std::vector<float> want = walk(level_of(*t), true, x, widened(wt, w, true, K, N), N);
        const std::string types = std::string("_nk_") + name_of(xt) + "_" + name_of(wt);
        for (const uint32_t chunks : {0u, 1u, 3u})
          expect(*t, {"matmul" + types, {x.as(xt), w.as<void>()}, M, K, N, true, want.data()},
                 ProductParams{}, chunks);
        for (size_t i = 0; i < want.size(); ++i) want[i] += bias.as<float>()[i % N];
        expect(*t,
               {"linear" + types,
                {x.as(xt), w.as<void>(), bias.as<void>()},
                M,
                K,
                N,
                true,
                want.data()},
               ProductParams{}, 1);
      }
      const Int4Data d = int4_data(K * N, 32, DType::F16, N % 2 == 1, random);
      std::vector<float> w(K * N);
      for (size_t i = 0; i < K * N; ++i) w[i] = d.weight(level_of(*t), i);
      const std::vector<float> want = walk(level_of(*t), true, x, w, N);
      ProductParams params{};
      params.group = 32, params.zeros = d.zeros;
      void* const offsets = d.offsets.as<void>();
      for (const char* variant : {"nk_f16", "nk_any_f16"})
        if (K % 32 == 0 || variant[3] == 'a')
          expect(*t,
                 {std::string("int4_matmul_") + variant,
                  {x.as(DType::F32), d.codes.as<void>(), d.scales.as<void>(),
                   d.zeros ? offsets : nullptr, d.zeros ? nullptr : offsets},
                  M,
                  K,
                  N,
                  true,
                  want.data()},
                 params, 1);
    }
}

// Blocks in turn ordinary, zero, at halves of a step, subnormal and large; row 3 holds a NaN, row 5
// an infinity.
static Rows int8_rows(size_t K, Random& random) {
  Rows x(kM, K, random);
  for (size_t i = 0; i < kM * K; ++i) {
    const size_t kind = i / 32 % 5;
    float& v = x.f32.as<float>()[i];
    if (kind == 1) v = 0;
    if (kind == 2) v = i % 32 ? float(int(random.next() >> 40) % 128) + 0.5f : 127.0f;
    if (kind == 3) v *= 1e-42f;
    if (kind == 4) v *= 1e30f;
  }
  x.f32.as<float>()[3 * K + K / 2] = NAN;
  x.f32.as<float>()[5 * K + K - 1] = -INFINITY;
  return x;
}
// code(n, k), scale(n, g), offset(n, g) or null.
template <class Code, class Plane>
static std::vector<float> walk_int8_rows(const Level& level, const Rows& x, size_t N, size_t group,
                                         const Code& code, const Plane& scale,
                                         const Plane* offset) {
  std::vector<float> out(x.M * N);
  for (size_t m = 0; m < x.M; ++m) {
    const auto blocks = int8_blocks(x.row(m), x.K, group);
    for (size_t n = 0; n < N; ++n) {
      using Of = std::function<float(size_t)>;
      const Of s = [&](size_t g) { return scale(n, g); };
      const Of o = [&](size_t g) { return (*offset)(n, g); };
      out[m * N + n] = walk_int8(
          level, blocks, [&](size_t k) { return code(n, k); }, s, offset ? &o : nullptr);
    }
  }
  return out;
}
using PlaneAt = std::function<float(size_t, size_t)>;

static void int4_by_int8(const accel_cpu::KernelTable& table, const Rows& x, size_t N,
                         const Int4Data& d) {
  const size_t K = x.K, groups = K / d.group;
  const PlaneAt scale = [&](size_t n, size_t g) {
    return get(d.planes, d.scales.as<void>(), n * groups + g);
  };
  const PlaneAt offset = [&](size_t n, size_t g) {
    const volatile float o = get(d.planes, d.offsets.as<void>(), n * groups + g), s = scale(n, g);
    return !d.zeros || s == 0 ? o : -o * s;
  };
  const auto code = [&](size_t n, size_t k) {
    const size_t i = n * K + k;
    return int(d.codes.as<uint32_t>()[i / 8] >> (4 * (i % 8)) & 15);
  };
  const auto want = walk_int8_rows(level_of(table), x, N, d.group, code, scale, &offset);
  ProductParams params{};
  params.group = unsigned(d.group), params.zeros = d.zeros, params.activations = 3;
  void* const offsets = d.offsets.as<void>();
  Product p{"int4_matmul_int8_" + std::string(name_of(d.planes)),
            {x.as(DType::F32), d.codes.as<void>(), d.scales.as<void>(), d.zeros ? offsets : nullptr,
             d.zeros ? nullptr : offsets},
            0,
            K,
            N,
            true,
            want.data()};
  expect_all_rows(table, p, params);
  p.kernel = "int4_matvec_int8_" + std::string(name_of(d.planes));
  p.M = 1;
  expect(table, p, params, 0);
}

static void int8_by_int8(const accel_cpu::KernelTable& table, const Rows& x, size_t N,
                         Random& random) {
  const size_t K = x.K, groups = K / 32;
  const Guarded q(K * N), scales = floats(DType::F16, groups * N, random, 0.01f);
  for (size_t i = 0; i < K * N; ++i) q.as<int8_t>()[i] = int8_t(random.next() >> 30);
  const auto code = [&](size_t n, size_t k) { return int(q.as<int8_t>()[n * K + k]); };
  const PlaneAt scale = [&](size_t n, size_t g) {
    return get(DType::F16, scales.as<void>(), n * groups + g);
  };
  const PlaneAt* none = nullptr;
  const auto want = walk_int8_rows(level_of(table), x, N, 32, code, scale, none);
  ProductParams params{};
  params.group = 32, params.activations = 3;
  expect_all_rows(table,
                  {"quant_matmul_int8_f32",
                   {x.as(DType::F32), q.as<void>(), scales.as<void>()},
                   0,
                   K,
                   N,
                   true,
                   want.data()},
                  params);
}

// K of single runs and of more groups than are widened at once; N beside whole blocks of columns.
static const size_t kInt8K[] = {32, 64, 96, 128, 160, 224, 576, 896, 2080, 2176};
static const size_t kInt8N[] = {1, 3, 16, 17, 33, 48, 67};

TEST(p26_40_products_by_int8_follow_int8_group) {
  Random random;
  for (const auto* t : tables())
    for (const size_t K : kInt8K) {
      const Rows x = int8_rows(K, random);
      for (const size_t N : kInt8N) {
        int8_by_int8(*t, x, N, random);
        for (const size_t group : {32, 64, 128}) {
          if (K % group) continue;
          const DType planes = N % 3 == 0 ? DType::F32 : N % 3 == 1 ? DType::F16 : DType::BF16;
          int4_by_int8(*t, x, N, int4_data(K * N, group, planes, N % 2 == 0, random));
          int4_by_int8(*t, x, N, int4_data(K * N, group, DType::F16, N % 2 == 1, random));
        }
      }
    }
}

// Low nibble first: only the code that a one-hot row selects is seen.
TEST(p26_16_int4_codes_stand_low_nibble_first) {
  for (const auto* t : tables()) {
    const Guarded codes(16 * 4), scale(4), zero(4), a(128 * 4), out(4);
    for (int i = 0; i < 16; ++i) codes.as<uint32_t>()[i] = i == 3 ? 0x76543210u : 0;
    scale.as<float>()[0] = 1, zero.as<float>()[0] = 0;
    for (int hot = 0; hot < 8; ++hot) {
      for (int k = 0; k < 128; ++k) a.as<float>()[k] = k == 24 + hot ? 1.0f : 0.0f;
      ProductParams p{1, 128, 1, 1, 128, 1, 0, 1, 0};
      run_kernel(*kernel(*t, "int4_matvec_nk_f32"),
                 {a.as<void>(), codes.as<void>(), scale.as<void>(), zero.as<void>(), nullptr,
                  out.as<void>()},
                 p, 1);
      CHECK_EQ(out.as<float>()[0], float(hot));
    }
  }
}

// A row of NaN and infinities changes no other row, and sums of underflowing terms keep the sign of
// their zero.
TEST(rows_do_not_touch_each_other) {
  Random random;
  const size_t K = 33, N = 19;
  for (const bool nk : {true, false})
    for (const auto* t : tables()) {
      const Rows x(kM, K, random);
      for (size_t k = 0; k < K; ++k) {
        x.f32.as<float>()[4 * K + k] = k % 2 ? NAN : INFINITY;
        x.f32.as<float>()[5 * K + k] = -1e-30f;
      }
      const Guarded w = floats(DType::F32, K * N, random);
      for (size_t i = 0; i < K * N; ++i)
        w.as<float>()[i] = std::fabs(w.as<float>()[i]) * 1e-16f + 1e-20f;
      const auto want = walk(level_of(*t), nk, x, widened(DType::F32, w, nk, K, N), N);
      CHECK(std::isnan(want[4 * N]) && std::signbit(want[5 * N]) == level_of(*t).fused);
      expect_all_rows(*t,
                      {std::string("matmul_") + order_name(nk) + "_f32_f32",
                       {x.as(DType::F32), w.as<void>()},
                       0,
                       K,
                       N,
                       nk,
                       want.data()},
                      ProductParams{});
    }
}

// K beyond one slice and one panel, M beyond one super-block, N beyond one block of columns.
TEST(large_products_are_cut_without_changing_a_bit) {
  Random random;
  const size_t M = 103, K = 1161, N = 139;
  for (const bool nk : {true, false})
    for (const auto* t : tables()) {
      const Rows x(M, K, random);
      const Guarded w = floats(DType::F16, K * N, random);
      const auto want = walk(level_of(*t), nk, x, widened(DType::F16, w, nk, K, N), N);
      for (const uint32_t chunks : {0u, 1u, 9u, 64u})
        expect(*t,
               {std::string("matmul_") + order_name(nk) + "_f32_f16",
                {x.as(DType::F32), w.as<void>()},
                M,
                K,
                N,
                nk,
                want.data()},
               ProductParams{}, chunks);
    }
}

// A row longer than what a block of 32 widened rows may take.
TEST(long_rows_are_cut_without_changing_a_bit) {
  Random random;
  const size_t M = 3, K = 20011, N = 9;
  for (const auto* t : tables()) {
    const Rows x(M, K, random);
    const Int4Data d = int4_data(K * N, 64, DType::BF16, true, random);
    int4_product(*t, true, Rows(kM, 1160, random), N,
                 int4_data(1160 * N, 64, DType::BF16, false, random));
    std::vector<float> w(K * N);
    for (size_t i = 0; i < K * N; ++i) w[i] = d.weight(level_of(*t), i);
    const auto want = walk(level_of(*t), true, x, w, N);
    ProductParams params{};
    params.group = 64, params.zeros = 1;
    expect(
        *t,
        {"int4_matmul_nk_any_bf16",
         {x.as(DType::F32), d.codes.as<void>(), d.scales.as<void>(), d.offsets.as<void>(), nullptr},
         M,
         K,
         N,
         true,
         want.data()},
        params, 0);
  }
}

// Chunks on threads of their own: they write disjoint outputs and share no scratch.
TEST(chunks_run_at_the_same_time) {
  Random random;
  const size_t M = 17, K = 160, N = 64;
  for (const auto* t : tables())
    for (const bool nk : {true, false}) {
      const Rows x(M, K, random);
      const Guarded w = floats(DType::F32, K * N, random), out(M * N * 4);
      const auto want = walk(level_of(*t), nk, x, widened(DType::F32, w, nk, K, N), N);
      const accel_cpu::Kernel& k =
          *kernel(*t, std::string("matmul_") + order_name(nk) + "_f32_f32");
      const ProductParams params{unsigned(M), unsigned(K), unsigned(N), nk, 0, 0, 0, 1, 0};
      const Scratch shared(k.shared_bytes(&params));
      void* const buffers[] = {x.as(DType::F32), w.as<void>(), out.as<void>()};
      const accel_cpu::KernelArgs args{buffers, &params, nullptr, shared.memory.as<void>()};
      for (const accel_cpu::Phase& phase : k.phases) {
        std::vector<std::thread> threads;
        for (uint32_t c = 0; c < 4; ++c)
          threads.emplace_back([&, c] {
            const Scratch local(k.local_bytes(&params));
            phase.run(&args, c, 4, local.memory.as<void>());
          });
        for (auto& thread : threads) thread.join();
      }
      CHECK(std::memcmp(out.as<void>(), want.data(), M * N * 4) == 0);
    }
}

// Kernels choose their number of chunks freely, but never none, and fewer than there are units of
// work.
TEST(chunk_counts_are_sensible) {
  for (const auto* t : tables())
    for (const unsigned m : {1u, 2u, 17u, 512u})
      for (const unsigned n : {1u, 192u, 49152u})
        for (const uint32_t threads : {1u, 2u, 64u}) {
          const ProductParams p{m, 576, n, 1, 0, 0, 0, 1, 0};
          const accel_cpu::Kernel& k = *kernel(*t, "matmul_nk_f32_f16");
          const uint32_t chunks = k.phases[1].chunks(&p, threads);
          CHECK(k.phases[0].chunks(&p, threads) >= 1);
          CHECK(chunks >= 1 && chunks <= (n + 15) / 16 * ((m + 95) / 96));
          if (threads == 64 && n == 49152) CHECK(chunks >= 2 * threads);
        }
}

// ---------------------------------------------------------------- the definitions

static In in_of(DType t, Shape shape) {
  In in;
  in.present = true, in.dtype = t, in.strides = contiguous_strides(shape),
  in.shape = std::move(shape);
  return in;
}
static Call call_of(const OpDef& def, std::vector<In> in, const char* order = "nk") {
  Call c;
  c.def = &def, c.in = std::move(in);
  Attr a;
  a.set = true, a.s = order;
  c.attrs.assign(def.attrs.size(), Attr());  // what is left out keeps its default
  c.attrs[0] = a;
  return c;
}
static std::string refusal(const Call& c) {
  try {
    c.def->infer(c);
  } catch (const Refusal& r) {
    static const char* const kinds[] = {"graph ", "shape ", "dtype ", "attr "};
    return kinds[int(r.kind)] + r.message;
  }
  return "none";
}
static const DType F32 = DType::F32, F16 = DType::F16, BF16 = DType::BF16;

TEST(float_products_refuse) {
  const OpDef& matmul = op_def(Op::matmul);
  const auto with = [&](In x, In w, const char* order = "nk") {
    return refusal(call_of(matmul, {x, w}, order));
  };
  CHECK_EQ(with(in_of(F32, {4, 8}), in_of(F32, {6, 8})), "none");
  CHECK_EQ(with(in_of(F32, {8}), in_of(F32, {6, 8})), "shape x is [8] and must be of rank 2");
  CHECK_EQ(with(in_of(F32, {4, 8}), in_of(F32, {1, 6, 8})),
           "shape w is [1 6 8] and must be of rank 2");
  CHECK_EQ(with(in_of(F32, {4, 8}), in_of(F32, {8, 6})),
           "shape w is [8 6] and must be [N 8] with w_order 'nk', because x is [4 8]");
  CHECK_EQ(with(in_of(F32, {4, 8}), in_of(F32, {6, 8}), "kn"),
           "shape w is [6 8] and must be [8 N] with w_order 'kn', because x is [4 8]");
  CHECK_EQ(with(in_of(F32, {4, 8}), in_of(F32, {6, 8}), "mn"),
           "attr w_order is 'mn' and must be 'kn' or 'nk'");
  const std::string wider = with(in_of(F16, {4, 8}), in_of(F32, {6, 8}));
  CHECK(wider.find("the weight is wider than the activation") != std::string::npos);
  CHECK_EQ(with(in_of(BF16, {4, 8}), in_of(BF16, {6, 8})).substr(0, 34),
           "dtype x is bf16 and must be f32 or");
  CHECK_EQ(with(in_of(F32, {4, 8}), in_of(DType::I8, {6, 8})).substr(0, 19), "dtype w is i8 and m");
  In none;
  const OpDef& linear = op_def(Op::linear);
  const In x = in_of(F16, {4, 8}), w = in_of(BF16, {6, 8});
  CHECK_EQ(refusal(call_of(linear, {x, w, none})), "none");
  CHECK_EQ(refusal(call_of(linear, {x, w, in_of(F32, {6})})), "none");
  CHECK_EQ(refusal(call_of(linear, {x, w, in_of(F32, {8})})), "shape bias is [8] and must be [6]");
  CHECK_EQ(refusal(call_of(linear, {x, w, in_of(F16, {6})})).substr(0, 34),
           "dtype bias is f16 and must be f32;");
}

TEST(quant_matmul_refuses) {
  const OpDef& def = op_def(Op::quant_matmul);
  const In q = in_of(DType::I8, {6, 8}), s = in_of(F16, {2});
  CHECK_EQ(refusal(call_of(def, {in_of(F32, {4, 8}), q, s})), "none");
  CHECK_EQ(refusal(call_of(def, {in_of(F32, {8}), q, s})), "shape x is [8] and must be of rank 2");
  CHECK_EQ(refusal(call_of(def, {in_of(F32, {4, 6}), q, s})),
           "shape w.quants is [6 8] and must be [N 6] with w_order 'nk', because x is [4 6]");
  CHECK_EQ(refusal(call_of(def, {in_of(F32, {4, 8}), in_of(DType::U8, {6, 8}), s})),
           "dtype w.quants is u8 and must be i8");
  CHECK_EQ(refusal(call_of(def, {in_of(BF16, {4, 8}), q, s})).substr(0, 15), "dtype x is bf16");
  CHECK_EQ(refusal(call_of(def, {in_of(F32, {4, 8}), q, in_of(F32, {2})})).substr(0, 35),
           "dtype w.scales is f32 and must be f");
  CHECK_EQ(refusal(call_of(def, {in_of(F32, {4, 8}), q, in_of(F16, {3})})),
           "shape w.scales is [3] with 3 entries and must have 2, one a block");
}

static Call int4_call(Op op, In a, int64_t weights = 512, int64_t group = 32) {
  In none;
  Call c = call_of(op_def(op), {std::move(a), in_of(DType::U32, {64}), in_of(F16, {16}), none,
                                in_of(F16, {16})});
  c.weights = weights, c.group = group;
  return c;
}

TEST(int4_products_refuse) {
  const Call matvec = int4_call(Op::int4_matvec, in_of(F32, {64}));
  CHECK_EQ(refusal(matvec), "none");
  CHECK(op_def(Op::int4_matvec).infer(matvec)[0] == (Type{F32, {8}}));
  CHECK(op_def(Op::int4_matmul).infer(int4_call(Op::int4_matmul, in_of(F32, {3, 64})))[0] ==
        (Type{F32, {3, 8}}));
  CHECK_EQ(refusal(int4_call(Op::int4_matvec, in_of(F32, {1, 64}))),
           "shape a is [1 64] and must be of rank 1; int4_matmul takes rank 2");
  CHECK_EQ(refusal(int4_call(Op::int4_matmul, in_of(F32, {64}))),
           "shape a is [64] and must be of rank 2; int4_matvec takes rank 1");
  CHECK_EQ(refusal(int4_call(Op::int4_matvec, in_of(F32, {60}))),
           "shape w.weights is 512 and must be a multiple of K, which is 60, because a is [60]");
  CHECK_EQ(refusal(int4_call(Op::int4_matvec, in_of(F16, {64}))).substr(0, 33),
           "dtype a is f16 and must be f32; c");
  CHECK_EQ(refusal(int4_call(Op::int4_matvec, in_of(F32, {64}), 512, 48)),
           "attr w.group is 48 and must be 32, 64 or 128");
  CHECK_EQ(refusal(int4_call(Op::int4_matvec, in_of(F32, {64}), 0)).substr(0, 25),
           "shape w.weights is 0 and ");
  CHECK_EQ(refusal(int4_call(Op::int4_matvec, in_of(F32, {64}), 504)).substr(0, 16),
           "shape w.codes is");
  Call mixed = int4_call(Op::int4_matvec, in_of(F32, {64}));
  mixed.in[4].dtype = BF16;
  CHECK_EQ(refusal(mixed).substr(0, 35), "dtype w.biases is bf16 and must be ");
}

// Rows of the CPU name kernels that every table has; every row has the order that the walk above is
// of. A GPU has those of the CPU, but for packed planes, and launches what its shader owns.
TEST(rows_name_kernels_and_orders) {
  for (const Op op : {Op::matmul, Op::linear, Op::quant_matmul, Op::int4_matvec, Op::int4_matmul})
    for (const KernelRow& row : op_def(op).kernels) {
      const bool kn = std::string(row.kernel).find("_kn_") != std::string::npos;
      const bool int8 = std::string(row.kernel).find("_int8_") != std::string::npos;
      const bool matrix = std::string(row.kernel).find("_matrix8_") != std::string::npos;
      const bool units = std::string(row.kernel).find("_matrix16_") != std::string::npos;
      CHECK(!matrix || row.backend == Backend::metal);
      CHECK(!units || (row.backend == Backend::cuda && !kn));
      CHECK_EQ(std::string(row.order), matrix  ? "matrix8"
                                       : units ? "matrix16"
                                       : int8  ? "int8_group"
                                       : kn    ? "chain"
                                               : "lane16");
      CHECK((row.backend == Backend::cpu) == (row.launches == nullptr));
      if (row.backend != Backend::cpu) continue;
      for (const auto* t : built_tables()) CHECK(kernel(*t, row.kernel) != nullptr);
    }
}

// A launch covers every row and column, by the function of one, of few or of many rows.
TEST(a_gpu_launches_by_the_number_of_rows) {
  Limits limits;
  limits.backend = Backend::cuda;
  const auto launched = [&](const OpDef& def, Call c) {
    c.results = def.infer(c);
    const KernelRow& row = *select(c, limits, Site()).row;
    Launches out;
    row.launches(c, row, out);
    std::string text;
    for (const Launch& l : out.list)
      text += l.function + " " + std::to_string(l.groups[0]) + "x" + std::to_string(l.groups[1]) +
              "x" + std::to_string(l.threads) + (out.scratch ? " " : "");
    return out.scratch ? text + std::to_string(out.scratch) : text;
  };
  const OpDef &matmul = op_def(Op::matmul), &quant = op_def(Op::quant_matmul);
  const auto rows = [&](int64_t m, const char* order) {
    const In w = in_of(F16, std::string(order) == "nk" ? Shape{70, 20} : Shape{20, 70});
    return launched(matmul, call_of(matmul, {in_of(F32, {m, 20}), w}, order));
  };
  CHECK_EQ(rows(1, "nk"), "matmul_nk_f32_f16_one 1x5x64");
  CHECK_EQ(rows(2, "nk"), "matmul_nk_f32_f16_few 1x3x64");
  CHECK_EQ(rows(8, "nk"), "matmul_nk_f32_f16_few 2x3x64");
  CHECK_EQ(rows(9, "nk"), "matmul_nk_f32_f16_many 1x3x256");
  CHECK_EQ(rows(1, "kn"), "matmul_kn_f32_f16_one 1x2x64");
  CHECK_EQ(rows(5, "kn"), "matmul_kn_f32_f16_few 2x2x64");
  CHECK_EQ(rows(33, "kn"), "matmul_kn_f32_f16_many 5x1x64");
  Call rounded = call_of(quant, {in_of(F32, {3, 64}), in_of(DType::I8, {2, 64}), in_of(F16, {4})});
  rounded.attrs[1].set = true;
  rounded.attrs[1].s = "int8";
  CHECK_EQ(launched(quant, rounded),
           "round_to_int8_f32 1x1x64 quant_matmul_int8_few 1x1x64 " + std::to_string(3 * 64 + 48));
  // Rings: up to eight rows, where K and the memory of a group allow it.
  limits.group_bytes = 227 * 1024;
  CHECK_EQ(rows(1, "nk"), "matmul_nk_f32_f16_one 1x5x64");  // K of 20
  const auto ring = [&](int64_t m, int64_t k, int64_t n) {
    return launched(matmul, call_of(matmul, {in_of(F32, {m, k}), in_of(F16, {n, k})}));
  };
  CHECK_EQ(ring(1, 576, 70), "matmul_nk_f32_f16_ring_one_short 18x1x32");
  CHECK_EQ(ring(1, 1536, 576), "matmul_nk_f32_f16_ring_one_small 144x1x32");
  CHECK_EQ(ring(1, 4096, 1024), "matmul_nk_f32_f16_ring_one_deep 64x1x128");
  CHECK_EQ(ring(1, 4096, 4096), "matmul_nk_f32_f16_ring_one_large 128x1x256");
  CHECK_EQ(ring(1, 576, 49152), "matmul_nk_f32_f16_ring_one_wide 1536x1x128");
  CHECK_EQ(ring(2, 64, 33), "matmul_nk_f32_f16_ring_two 2x1x256");
  CHECK_EQ(ring(3, 64, 33), "matmul_nk_f32_f16_ring_four 2x1x256");
  CHECK_EQ(ring(8, 64, 33), "matmul_nk_f32_f16_ring_eight 2x1x128");
  CHECK_EQ(ring(9, 64, 33), "matmul_nk_f32_f16_many 1x2x256");
  CHECK_EQ(ring(1, 68, 33), "matmul_nk_f32_f16_one 1x3x64");
  limits.group_bytes = 99 * 1024;
  CHECK_EQ(ring(1, 4096, 4096), "matmul_nk_f32_f16_one 1x256x64");
  limits.backend = Backend::metal;
  CHECK_EQ(rows(9, "nk"), "matmul_nk_f32_f16_many 1x3x256");
  const auto whole = [&](int64_t m) {
    return launched(matmul, call_of(matmul, {in_of(F16, {m, 64}), in_of(F16, {72, 64})}));
  };
  CHECK_EQ(whole(1), "matmul_matrix8_nk_f16_f16_few 1x3x128");
  CHECK_EQ(whole(40), "matmul_matrix8_nk_f16_f16_many 2x3x128");
  limits.simd_groups = false;
  CHECK_EQ(whole(1), "matmul_nk_f16_f16_one 1x5x64");
}

TEST(selection_follows_dtypes_order_and_whole_groups) {
  const auto chosen = [](Call c) {
    c.results = c.def->infer(c);
    return std::string(select(c, Limits{}, Site()).row->kernel);
  };
  const OpDef& quant = op_def(Op::quant_matmul);
  CHECK_EQ(chosen(call_of(op_def(Op::matmul), {in_of(F16, {4, 8}), in_of(BF16, {6, 8})})),
           "matmul_nk_f16_bf16");
  CHECK_EQ(chosen(call_of(op_def(Op::matmul), {in_of(F32, {4, 8}), in_of(F32, {8, 6})}, "kn")),
           "matmul_kn_f32_f32");
  CHECK_EQ(
      chosen(call_of(quant, {in_of(F32, {1, 64}), in_of(DType::I8, {2, 64}), in_of(F16, {4})})),
      "quant_matmul_nk_f32");
  CHECK_EQ(
      chosen(call_of(quant, {in_of(F16, {1, 33}), in_of(DType::I8, {2, 33}), in_of(F16, {3})})),
      "quant_matmul_nk_any_f16");
  CHECK_EQ(chosen(int4_call(Op::int4_matvec, in_of(F32, {64}))), "int4_matvec_nk_f16");
  CHECK_EQ(chosen(int4_call(Op::int4_matmul, in_of(F32, {1, 16}))), "int4_matmul_nk_any_f16");
}
