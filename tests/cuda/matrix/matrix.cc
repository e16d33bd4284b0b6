// Every tile of shaders/shared/matrix_tiles.h by the text that the GPU gets, against a plain loop
// of the order matrix16. A build is for one type of weights and one of x: FORMAT and ACTIVATIONS;
// with FEW: one tile of few rows and one of many.
#include <algorithm>

#include "cuda/matrix.h"
#include "data.h"

typedef ACTIVATIONS Given;
static int cases = 0, wrong = 0;
constexpr bool kHalfX = sizeof(Given) == 2, kBf16 = std::is_same_v<FORMAT, WeightBf16>;

// ---------------------------------------------------------------- the order

static float kept(float v, unsigned bits) {
  return __uint_as_float(__float_as_uint(v) & bits);
}
// Terms of one value of x, the smallest first.
static std::vector<float> terms_of(float v, bool three, bool tf32) {
  if (!three) return {v};
  const unsigned bits = tf32 ? 0xffffe000u : 0xffff0000u;
  const float hi = kept(v, bits), mid = kept(v - hi, bits), lo = kept(v - hi - mid, bits);
  return {lo, mid, hi};
}
static float chain(const float* x, const float* w, unsigned K) {
  float sum = 0;
  for (unsigned k = 0; k < K; ++k) sum = std::fma(x[k], w[k], sum);
  return sum;
}
static float matrix16(const float* x, const float* w, unsigned K) {
  const bool three = !kHalfX, tf32 = kHalfX == kBf16;
  const size_t count = three ? 3 : 1;
  const auto add = [&](float sum, unsigned k0, unsigned step) {  // sixteen k
    std::vector<float> of[16], weights(16);
    for (unsigned i = 0; i < 16; ++i) {
      of[i] = terms_of(k0 + i < K ? x[k0 + i] : 0.0f, three, tf32);
      weights[i] = k0 + i < K ? w[k0 + i] : 0.0f;
    }
    for (unsigned j = 0; j < 16; j += step)
      for (size_t term = 0; term < count; ++term)
        for (unsigned place = 0; place < step; ++place) {
          const unsigned i = step == 16 ? place : j + (place < 4 ? 2 * place : 2 * place - 7);
          sum = std::fma(weights[i], of[i][term], sum);
        }
    return sum;
  };
  float total = 0;
  for (unsigned c = 0; c < K; c += 128) {
    float sum = 0;
    for (unsigned k = c; k < std::min(c + 128, K); k += 16) sum = add(sum, k, tf32 ? 8 : 16);
    total = c == 0 ? sum : total + sum;
  }
  return std::isfinite(total) ? total : chain(x, w, K);
}

// ---------------------------------------------------------------- cases

enum Kind { kUsual, kOdd };  // odd: infinities, NaN, zeros, tiny and great values
struct Case {
  unsigned M, K, N, groups;
  bool bias = false;
  Kind kind = kUsual;
  unsigned shift_x = 0, shift_w = 0;
};

static float odd_value(size_t i, unsigned seed, unsigned K) {
  const unsigned row = unsigned(i / K), k = unsigned(i % K), h = hash(i, seed);
  const float usual = value(i, seed);
  switch (row % 8) {
    case 1:
      return k == K / 2 ? INFINITY : usual;
    case 2:
      return k == K - 1 ? NAN : usual;
    case 3:
      return h % 2 ? 0.0f : -0.0f;
    case 4:
      return std::ldexp(usual, -130);  // subnormal
    case 5:
      return usual * 3e38f;  // sums overflow
    case 6:
      return k == 0 ? -INFINITY : k == K - 1 ? INFINITY : usual;
    case 7:
      return __uint_as_float(h);  // any bits
    default:
      return usual;
  }
}
static Given stored(float v) {
  if constexpr (kHalfX) return to_f16(v);
  else return v;
}
static float widened_x(Given v) {
  if constexpr (kHalfX) return of_f16(v);
  else return v;
}

static void compare(const char* what, const Case& c, float got, float want, unsigned m,
                    unsigned n) {
  if (equal(got, want)) return;
  if (wrong++ < 20)
    printf("%s, M %u K %u N %u: column %u of row %u is %.9g and must be %.9g\n", what, c.M, c.K,
           c.N, n, m, got, want);
}

template <class Kernel>
static void run(const char* name, Dim grid, unsigned threads, unsigned bytes, const Case& c,
                Kernel kernel) {
  Weights<FORMAT> w(c.K, c.N, false, Planes::usual, c.shift_w, 11);
  Array<Given> x(size_t(c.M) * c.K, c.shift_x);
  Array<float> bias(c.bias ? c.N : 0, c.shift_x), out(size_t(c.M) * c.N, 0);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = stored(c.kind == kOdd ? odd_value(i, 5, c.K) : value(i, 5));
  for (size_t i = 0; c.kind == kOdd && i < w.wide.size(); ++i) {
    const float v = odd_value(i + 3 * c.K, 7, c.K);
    w.w[i] = kBf16 ? to_bf16(v) : to_f16(v);
    w.wide[i] = kBf16 ? of_bf16(w.w[i]) : of_f16(w.w[i]);
  }
  for (size_t i = 0; i < bias.size(); ++i) bias[i] = value(i, 6);
  std::vector<float> want(out.size()), row(c.K);
  for (unsigned m = 0; m < c.M; ++m) {
    for (unsigned k = 0; k < c.K; ++k) row[k] = widened_x(x[size_t(m) * c.K + k]);
    for (unsigned n = 0; n < c.N; ++n) {
      const float sum = matrix16(row.data(), w.wide.data() + size_t(n) * c.K, c.K);
      want[size_t(m) * c.N + n] = c.bias ? sum + bias[n] : sum;
    }
  }
  const ProductParams p = {c.M, c.K, c.N, 1, 32, 0, 0, 1, c.bias};
  for (bool late : {false, true}) {
    emu::late = late;
    emu::operands = {x.range(false), bias.range(false), w.w.range(true)};
    for (size_t i = 0; i < out.size(); ++i) out[i] = 12345.0f;
    emu::launch(grid, threads, bytes,
                [&] { kernel(x.data(), w.w.data(), bias.data(), out.data(), p); });
    for (size_t i = 0; i < out.size(); ++i)
      compare(name, c, out[i], want[i], unsigned(i / c.N), unsigned(i % c.N));
    if (!out.kept() && wrong++ < 20) printf("%s: memory around the result was written\n", name);
    ++cases;
  }
}

// ---------------------------------------------------------------- tiles

static std::vector<Case> list_of(unsigned rows, unsigned columns, unsigned warps, unsigned depth) {
  const unsigned round = 128 * (warps == 8 && rows < 64 ? 8 : 4), tail = 128 + depth + 24;
  const unsigned small = rows < 64 ? round + tail : 128 + tail;
  return {
      {.M = rows, .K = small, .N = columns + 3, .groups = 1},
      {.M = 1, .K = 64, .N = 5, .groups = 1, .bias = true},
      {.M = rows + 1, .K = 576, .N = 2 * columns + 1, .groups = 2, .bias = true},
      {.M = 9, .K = 256, .N = columns, .groups = 1, .kind = kOdd},
      {.M = 7, .K = 136, .N = 17, .groups = 1, .bias = true, .kind = kOdd},
      {.M = 2, .K = 200, .N = 18, .groups = 1, .kind = kOdd, .shift_x = 1, .shift_w = 1},
      {.M = 8, .K = depth + 8, .N = 21, .groups = 1, .shift_w = 3},
      {.M = 3, .K = 72, .N = 16, .groups = 1, .shift_x = 1},
      {.M = 2 * rows + 3, .K = 88, .N = 9, .groups = 1},
      {.M = std::min(rows, 9u), .K = 408, .N = columns + 1, .groups = 1, .bias = true},
      {.M = 8, .K = 152, .N = 8, .groups = 1, .kind = kOdd},
      {.M = 1, .K = 80, .N = 3, .groups = 1, .shift_x = 1, .shift_w = 1},
  };
}

// On sm_80, and as often as a multiprocessor of sm_90 is to hold it.
static void fits(const char* name, unsigned bytes, unsigned groups) {
  if (bytes <= 163 * 1024 && groups * (bytes + 1024) <= 228 * 1024) return;
  printf("%s: %u bytes are more than there are\n", name, bytes);
  ++wrong;
}

#define CALL(form, ...)                                                                     \
  [](const Given* x, const u16* w, const float* bias, float* out, const ProductParams& p) { \
    form<FORMAT, Given, __VA_ARGS__>(x, w, bias, out, p);                                   \
  }
#define RUN(form, many, suffix, rows, columns, warps, depth, ...)                          \
  for (const Case& c : list_of(rows, columns, warps, depth)) {                             \
    const unsigned parts = (c.M + rows - 1) / rows, tiles = (c.N + columns - 1) / columns; \
    const Dim grid = {parts, many ? tiles : std::min(c.groups, tiles), 1};                 \
    const unsigned bytes =                                                                 \
        form##_bytes(rows, columns, warps, depth, __VA_ARGS__, u32(sizeof(Given)));        \
    fits(#suffix, bytes, many ? 8 / warps : warps / 4);                                    \
    run(#suffix, grid, 32 * warps, bytes, c,                                               \
        CALL(form, rows, columns, warps, depth, __VA_ARGS__));                             \
  }
#define FEW_ROWS(...) RUN(matrix_few, false, __VA_ARGS__)
#define MANY_ROWS(...) RUN(matrix_many, true, __VA_ARGS__)

int main() {
#ifdef FEW
  FEW_ROWS(rows8, 8, 16, 8, 64, 4, 3)
  MANY_ROWS(rows64, 64, 64, 4, 64, 4, 3)
#else
  MATRIX_FEW_TILES(FEW_ROWS)
  MATRIX_MANY_TILES(MANY_ROWS)
#endif
  printf("%d cases, %d wrong\n", cases, wrong);
  return wrong != 0;
}
