// Every ring of shaders/shared/ring_tiles.h, plain and fused, by the text that the GPU gets,
// against plain loops. A build is for one format of weights: FORMAT, the list of its RINGS, and
// HALF_X where there are kernels for f16 activations.
#include "data.h"

static int cases = 0, wrong = 0;

static void compare(const char* what, float got, float want, unsigned part, unsigned n) {
  if (equal(got, want)) return;
  if (wrong++ < 20)
    printf("%s: column %u of part %u is %.9g and must be %.9g\n", what, n, part, got, want);
}
static void require(const char* what, bool good, const char* text) {
  if (!good && wrong++ < 20) printf("%s: %s\n", what, text);
}

// ---------------------------------------------------------------- plain

struct Plain {
  unsigned M, K, N, groups;
  unsigned activations = 0;
  bool bias = false, zeros = false;
  Planes planes = Planes::usual;
  unsigned shift = 0;
};

template <class F, class X, int Rows, int... Rest>
static void run_plain(const char* name, unsigned threads, unsigned bytes, const Plain& c) {
  Weights<F> w(c.K, c.N, c.zeros, c.planes, c.shift, 11);
  Array<X> x(size_t(c.M) * c.K, c.shift);
  Array<float> bias(c.bias ? c.N : 0, c.shift), out(size_t(c.M) * c.N, 0);
  for (size_t i = 0; i < x.size(); ++i) {
    if constexpr (sizeof(X) == 4) x[i] = value(i, 5);
    else x[i] = to_f16(value(i, 5));
  }
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = value(i, 6);
  const ProductParams p = {c.M, c.K, c.N, 1, 32, c.zeros, c.activations, 1, c.bias};
  for (bool late : {false, true}) {
    emu::late = late;
    emu::operands = {x.range(false), bias.range(false), w.w.range(true), w.scales.range(true),
                     w.offsets.range(true)};
    for (size_t i = 0; i < out.size(); ++i) out[i] = NAN;
    emu::launch(c.groups, threads, bytes, [&] {
      nk_ring<F, X, Rows, Rest...>(x.data(), w.w.data(), w.scales.data(), w.offsets.data(),
                                   bias.data(), out.data(), p);
    });
    std::vector<float> row(c.K);
    for (unsigned m = 0; m < c.M; ++m) {
      for (unsigned k = 0; k < c.K; ++k) {
        const X v = x[size_t(m) * c.K + k];
        if constexpr (sizeof(X) == 4) row[k] = rounded(v, c.activations);
        else row[k] = rounded(of_f16(v), c.activations);
      }
      for (unsigned n = 0; n < c.N; ++n) {
        const float sum = lane16(row.data(), w.wide.data() + size_t(n) * c.K, c.K);
        compare(name, out[size_t(m) * c.N + n], c.bias ? sum + bias[n] : sum, m, n);
      }
    }
    require(name, out.kept(), "memory around the result was written");
    ++cases;
  }
}

template <class F, class X, int Rows, int Threads, int Columns, int Warps, int Depth, int Stages>
static void plain_ring(const char* name) {
  typedef Ring<F, Rows, Threads, Columns, Warps, Depth, Stages> R;
  const bool quantized = R::kPlanes > 0;
  const unsigned some = R::kGroupColumns, fewer = Rows > 1 ? Rows - 1 : 1;
  const unsigned tail = quantized ? 64 : R::kBits == 32 ? 20 : 24;
  const Planes odd = Planes::odd;
  std::vector<Plain> list = {
      {.M = Rows, .K = 576, .N = some + 3, .groups = 1},
      {.M = fewer, .K = 64, .N = 5, .groups = 1, .bias = true, .zeros = true, .planes = odd},
      {.M = Rows,
       .K = 2 * Depth + tail,
       .N = 2 * some + 1,
       .groups = 2,
       .activations = 1,
       .zeros = true},
      {.M = Rows, .K = (Stages + 1) * Depth, .N = 3, .groups = 1, .activations = 2, .planes = odd},
      {.M = Rows, .K = 18432, .N = 2, .groups = 1},
      {.M = Rows, .K = Depth + tail, .N = 9, .groups = 2, .bias = true, .planes = odd, .shift = 1},
  };
  for (const Plain& c : list)
    run_plain<F, X, Rows, Threads, Columns, Warps, Depth, Stages>(
        name, R::kThreads, ring_x_bytes(c.K, Rows, Depth) + Warps * R::kWarp, c);
}

// ---------------------------------------------------------------- fused

enum Residual { kNone, kApart, kInPlace };
enum Kind { kUsual, kZeros, kNan };  // of x
struct Fused {
  unsigned K;
  std::vector<unsigned> N;
  unsigned groups;
  bool norm = false, pair = false;
  Residual residual = kNone;
  unsigned activations = 0;
  bool zeros = false;
  Planes planes = Planes::usual;
  unsigned shift_w = 0, shift_x = 0;
  Kind x = kUsual;
};

// What rms_norm stores (specs/010 section 4), rounded as the products round it.
static std::vector<float> normed(const Fused& c, Array<float>& x, Array<float>& gain, float eps) {
  std::vector<float> row(c.K);
  for (unsigned k = 0; k < c.K; ++k) row[k] = x[k];
  if (c.norm) {
    const float scale = 1.0f / std::sqrt(lane16(row.data(), row.data(), c.K) / float(c.K) + eps);
    for (unsigned k = 0; k < c.K; ++k) row[k] = row[k] * scale * gain[k];
  }
  for (float& v : row) v = rounded(v, c.activations);
  return row;
}

template <class F>
struct Bound {
  Array<float> x, gain, residual, out[3];
  std::vector<Weights<F>> w;
  FusedOperands<F> operands;
  FusedProductParams p = {};

  explicit Bound(const Fused& c) : x(c.K, c.shift_x), gain(c.K, c.shift_x) {
    for (unsigned k = 0; k < c.K; ++k) x[k] = c.x == kZeros ? (k % 3 ? 0.0f : -0.0f) : value(k, 5);
    if (c.x == kNan) x[c.K / 2] = NAN;
    for (unsigned k = 0; k < c.K; ++k) gain[k] = 1.0f + value(k, 7);
    operands = {x.data(), gain.data(), nullptr, {}};
    p = {
        c.K,  unsigned(c.N.size()), {}, c.norm, c.pair, c.residual != kNone, c.activations, c.zeros,
        1e-5f};
    for (unsigned i = 0; i < c.N.size(); ++i) {
      w.emplace_back(c.K, c.N[i], c.zeros, c.planes, c.shift_w, 100 + 10 * i);
      out[i] = {c.N[i], 0};
      p.N[i] = c.N[i];
    }
    for (unsigned i = 0; i < c.N.size(); ++i)
      operands.part[i] = {w[i].w.data(), w[i].scales.data(), w[i].offsets.data(), out[i].data()};
    if (c.residual == kNone) return;
    residual = {c.N[0], c.shift_x};
    operands.residual = c.residual == kApart ? residual.data() : out[0].data();
  }
  void fill(const Fused& c) {
    for (unsigned i = 0; i < c.N.size(); ++i)
      for (unsigned n = 0; n < c.N[i]; ++n) out[i][n] = NAN;
    if (c.residual == kNone) return;
    for (unsigned n = 0; n < c.N[0]; ++n) residual[n] = value(n, 9);
    if (c.residual == kInPlace)
      for (unsigned n = 0; n < c.N[0]; ++n) out[0][n] = residual[n];
  }
  void allow(const Fused& c) {
    emu::operands = {x.range(false)};
    if (c.norm) emu::operands.push_back(gain.range(false));
    if (c.residual == kApart) emu::operands.push_back(residual.range(false));
    if (c.residual == kInPlace) emu::operands.push_back(out[0].range(false));
    for (auto& of : w)
      for (const emu::Range& r : {of.w.range(true), of.scales.range(true), of.offsets.range(true)})
        emu::operands.push_back(r);
  }
};

template <class F, int... Numbers>
static void run_fused(const char* name, unsigned threads, unsigned bytes, const Fused& c) {
  Bound<F> b(c);
  for (bool late : {false, true}) {
    emu::late = late;
    b.fill(c);
    b.allow(c);
    emu::launch(c.groups, threads, bytes, [&] { nk_fused<F, Numbers...>(b.operands, b.p); });
    const std::vector<float> x = normed(c, b.x, b.gain, b.p.eps);
    for (unsigned i = 0; i < (c.pair ? 1 : c.N.size()); ++i)
      for (unsigned n = 0; n < c.N[i]; ++n) {
        const size_t at = size_t(n) * c.K;
        float want = lane16(x.data(), b.w[i].wide.data() + at, c.K);
        if (c.pair)
          want = shader::math_swiglu(want, lane16(x.data(), b.w[1].wide.data() + at, c.K));
        if (c.residual && i == 0) want = want + b.residual[n];
        compare(name, b.out[i][n], want, i, n);
      }
    for (auto& out : b.out) require(name, out.kept(), "memory around a result was written");
    for (unsigned n = 0; c.pair && n < c.N[1]; ++n)
      require(name, b.out[1][n] != b.out[1][n], "the memory of up's result was written");
    ++cases;
  }
}

template <class F, int Rows, int Threads, int Columns, int Warps, int Depth, int Stages>
static void fused_ring(const char* name) {
  typedef Ring<F, 1, Threads, Columns, Warps, Depth, Stages> R;
  const bool quantized = R::kPlanes > 0;
  const unsigned some = R::kGroupColumns, tail = quantized ? 64 : R::kBits == 32 ? 20 : 24;
  const unsigned some_k = 2 * Depth + tail, most_k = 16384;
  const Planes odd = Planes::odd;
  const std::vector<Fused> list = {
      // q, k, v behind a norm, with more and with fewer groups than tiles of the first
      {.K = some_k, .N = {some + 3, 5, 2 * some + 1}, .groups = 2, .norm = true},
      {.K = 576,
       .N = {3 * some, some, some - 1},
       .groups = 6,
       .norm = true,
       .activations = 1,
       .zeros = true},
      {.K = 64, .N = {some, 1}, .groups = 1, .norm = true, .planes = odd, .x = kZeros},
      // gate and up
      {.K = some_k,
       .N = {2 * some + 3, 2 * some + 3},
       .groups = 2,
       .norm = true,
       .pair = true,
       .planes = odd},
      {.K = (Stages + 1) * Depth,
       .N = {3, 3},
       .groups = 1,
       .pair = true,
       .activations = 2,
       .zeros = true},
      // a residual
      {.K = some_k,
       .N = {some + 7},
       .groups = 1,
       .residual = kApart,
       .activations = 2,
       .planes = odd},
      {.K = 576,
       .N = {3 * some - 1},
       .groups = 3,
       .norm = true,
       .residual = kInPlace,
       .zeros = true},
      {.K = 18432, .N = {some + 1}, .groups = 1, .residual = kInPlace},
      // x and gain at 4 bytes; weights at no 16, planes at no 4
      {.K = some_k, .N = {some, 7}, .groups = 2, .norm = true, .shift_x = 1},
      {.K = some_k,
       .N = {9, 11, 2},
       .groups = 2,
       .norm = true,
       .planes = odd,
       .shift_w = 1,
       .shift_x = 1},
      {.K = 576,
       .N = {17, 17},
       .groups = 1,
       .norm = true,
       .pair = true,
       .activations = 1,
       .zeros = true,
       .shift_w = 1},
      {.K = 18432, .N = {5}, .groups = 1, .residual = kInPlace, .activations = 1, .shift_w = 1},
      // the longest row with a norm; NaN
      {.K = most_k, .N = {2, 1}, .groups = 1, .norm = true},
      {.K = 576, .N = {4, 4}, .groups = 1, .norm = true, .pair = true, .x = kNan},
  };
  for (const Fused& c : list) {
    const unsigned bytes = ring_x_bytes(c.K, 1, Depth) + RING_NORM_BYTES + Warps * R::kWarp;
    run_fused<F, Rows, Threads, Columns, Warps, Depth, Stages>(name, R::kThreads, bytes, c);
  }
}

int main() {
#define RING(suffix, ...) plain_ring<FORMAT, float, __VA_ARGS__>(#suffix);
  RINGS(RING)
#undef RING
#ifdef HALF_X
#define RING(suffix, ...) plain_ring<FORMAT, u16, __VA_ARGS__>(#suffix " of f16");
  RINGS(RING)
#undef RING
#endif
#define RING(suffix, ...) fused_ring<FORMAT, __VA_ARGS__>(#suffix "_fused");
  RINGS_ONE(RING)
#undef RING
  printf("%d cases, %d wrong\n", cases, wrong);
  return wrong != 0;
}
