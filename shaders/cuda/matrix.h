// Products with a weight [N, K] of f16 or bf16 on matrix instructions, order matrix16 (specs/011
// section 1): K in chunks of 128, each a sum of its own of steps of sixteen k, the sums added in
// f32 one after another. The weight is the operand of sixteen rows and x that of eight columns in
// every kernel, so a result comes by the same instructions whatever M and whatever the tile.
//
// Takes any M, N and K. Rows of x behind M and columns behind N are not there: what lies in their
// memory reaches no other result, and theirs are not stored. Operands that do not begin at 16
// bytes, or whose rows do not, are read one by one: slower, of the same bits.
#pragma once
#include "cuda/matrix_terms.h"
#include "cuda/ring.h"  // put_result, widened
#include "shared/matrix_tiles.h"

// ---------------------------------------------------------------- copies

// A stage: Depth k of Columns columns of the weight, then of Rows rows of x. Lanes threads, of
// which this is `lane`, copy it.
template <class X, int Rows, int Columns, int Depth, int Lanes>
struct MatrixCopies {
  enum : int {
    kWPitch = matrix_w_pitch(Depth),
    kXPitch = matrix_x_pitch(Depth, sizeof(X)),
    kX = Columns * kWPitch,
    kStage = matrix_stage_bytes(Rows, Columns, Depth, sizeof(X)),
  };
  const u16* w;
  const X* x;  // from the group's first row on
  u32 K, N, rows, lane;
  bool w_whole, x_whole;

  DEV MatrixCopies of(const u16* w, const X* x, u32 lane, const ProductParams& p) {
    const u32 row = blockIdx.x * Rows;
    MatrixCopies c;
    c.w = w, c.x = x + u64(row) * p.K;
    c.K = p.K, c.N = p.N, c.rows = min(u32(Rows), p.M - row), c.lane = lane;
    c.w_whole = (u64(w) | u64(p.K) * 2) % 16 == 0;
    c.x_whole = (u64(x) | u64(p.K) * sizeof(X)) % 16 == 0;
    return c;
  }
  __forceinline__ void copy_w(char* to, u32 n0, u32 k) const {
    copy<Columns, kWPitch>(to, w + u64(n0) * K, N - n0, k, w_whole);
  }
  __forceinline__ void copy_x(char* to, u32 k) const {
    copy<Rows, kXPitch>(to + kX, x, rows, k, x_whole);
  }
  // Those of Most rows that are there, k .. k + Depth - 1, zeros behind K.
  template <int Most, int Pitch, class T>
  __forceinline__ void copy(char* to, const T* from, u32 there, u32 k, bool whole) const {
    constexpr int kEach = 16 / sizeof(T), kPieces = Depth / kEach;
    static_assert(Lanes % kPieces == 0, "a thread has one place in every row that it copies");
    if (!whole) return copy_slowly<Most, Pitch>(to, from, there, k);
    const u32 row = lane / kPieces, at = lane % kPieces * kEach;
    const bool in = k + at < K;
    const T* own = from + u64(row) * K + (in ? k + at : 0);
    const u32 slot = shared_at(to + row * Pitch + at * sizeof(T));
#pragma unroll
    for (int i = 0; i < (Most * kPieces + Lanes - 1) / Lanes; ++i) {
      constexpr int kApart = Lanes / kPieces;
      if (row + i * kApart < min(u32(Most), there))
        copy16_or_zeros(slot + i * kApart * Pitch, own + u64(i * kApart) * K, in);
    }
  }
  template <int Most, int Pitch, class T>
  __forceinline__ void copy_slowly(char* to, const T* from, u32 there, u32 k) const {
#pragma unroll 1
    for (u32 id = lane; id < Most * Depth; id += Lanes) {
      const u32 row = id / Depth, at = id % Depth;
      if (row >= there) break;
      ((T*)(to + row * Pitch))[at] = k + at < K ? now(from + u64(row) * K + k + at) : T(0);
    }
  }
};

// ---------------------------------------------------------------- sums

// A warp's share of a stage: Mt times sixteen columns, Nt times eight rows.
template <class T, class C, int Mt, int Nt, int Depth>
struct MatrixStage {
  const char *w, *x;  // of the stage in slot 0, where this thread reads

  // column, row: the warp's first in a stage; last: the last row of x that has memory there.
  DEV MatrixStage of(const char* stages, u32 column, u32 row, u32 last, u32 lane) {
    const u32 own = column + lane % 16, k = lane / 16 * 16;
    return {stages + own * C::kWPitch + k,
            stages + C::kX + row * C::kXPitch + T::offset(lane, last, C::kXPitch)};
  }
  __forceinline__ void step(float (&sums)[Mt][Nt][4], u32 from, u32 s) const {
    u32 a[Mt][4];
    T b[Nt];
#pragma unroll
    for (int i = 0; i < Mt; ++i)
      load_matrices4(shared_at(w + from + i * 16 * C::kWPitch + s * 32), a[i]);
#pragma unroll
    for (int j = 0; j < Nt; ++j) b[j].load(x + from + j * 8 * C::kXPitch + s * T::kStep);
    add_step(sums, a, b);
  }
  // left: values of k from the stage's first on.
  __forceinline__ void add(float (&sums)[Mt][Nt][4], u32 slot, u32 left) const {
    const u32 from = slot * C::kStage;
    if (left >= Depth) {
      constexpr int kUnroll = Mt * Nt >= 8 ? 2 : Depth / MATRIX_STEP;
#pragma unroll kUnroll
      for (u32 s = 0; s < Depth / MATRIX_STEP; ++s) step(sums, from, s);
      return;
    }
#pragma unroll 1
    for (u32 s = 0; s * MATRIX_STEP < left; ++s) step(sums, from, s);
  }
};

template <int Mt, int Nt>
DEV void clear(float (&sums)[Mt][Nt][4], float to) {
#pragma unroll
  for (int i = 0; i < Mt; ++i)
#pragma unroll
    for (int j = 0; j < Nt; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) sums[i][j][r] = to;
}
// Of word r of a thread's result.
DEV u32 column_in(u32 lane, u32 r) {
  return lane / 4 + r / 2 * 8;
}
DEV u32 row_in(u32 lane, u32 r) {
  return lane % 4 * 2 + r % 2;
}

// ---------------------------------------------------------------- results

#define NO_SUM -0.0f  // plus a sum is that sum, a zero of either sign too

DEV bool is_finite(float v) {
  return (__float_as_uint(v) & 0x7f800000u) != 0x7f800000u;
}
// Terms of infinities are NaN, and sums of cut terms may overflow where no sum of products does.
template <class F, class X>
DEV float plain_chain(const X* x, const u16* w, u32 row, u32 n, const ProductParams& p) {
  float sum = 0.0f;
#pragma unroll 1
  for (u32 k = 0; k < p.K; ++k)
    sum = __fmaf_rn(widened(now(x + u64(row) * p.K + k)),
                    F::at(w, nullptr, nullptr, u64(n) * p.K + k, false), sum);
  return sum;
}
// Whether a result of this thread has to be made again.
DEV bool put_if_finite(float sum, const float* bias, u32 row, u32 n, float* out,
                       const ProductParams& p) {
  if (is_finite(sum)) put_result(sum, bias, row, n, out, p);
  else return row < p.M && n < p.N;
  return false;
}

// ---------------------------------------------------------------- few rows

// The stages of one warp: those of its chunks of one tile, then of the next.
template <int Warps, int Depth, int Stages>
struct MatrixWay {
  u32 tile, k, first;
  int slot;
  DEV MatrixWay of(u32 warp, u32 K, u32 tiles) {
    const u32 first = warp * MATRIX_CHUNK;
    return {first < K ? blockIdx.y : tiles, first, first, 0};
  }
  __forceinline__ void go_on(u32 K) {
    slot = slot + 1 == Stages ? 0 : slot + 1;
    k += Depth;
    if (k % MATRIX_CHUNK && k < K) return;
    k = ((k - 1) / MATRIX_CHUNK + Warps) * MATRIX_CHUNK;
    if (k >= K) k = first, tile += gridDim.y;
  }
};

template <class F, class X, int Rows, int Columns, int Warps, int Depth, int S16, int S32>
DEV void matrix_few(const X* x, const u16* w, const float* bias, float* out,
                    const ProductParams& p) {
  constexpr int Stages = sizeof(X) == 2 ? S16 : S32, Mt = Columns / 16, Nt = (Rows + 7) / 8;
  constexpr int kResults = Rows * Columns, kThreads = 32 * Warps;
  constexpr int kOwn = (kResults + kThreads - 1) / kThreads;
  typedef MatrixTerms<F, X> T;
  typedef MatrixCopies<X, Rows, Columns, Depth, 32> C;
  typedef MatrixWay<Warps, Depth, Stages> Way;
  extern __shared__ __align__(128) char room[];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, K = p.K;
  const u32 tiles = (p.N + Columns - 1) / Columns, row0 = blockIdx.x * Rows;
  float* const sums = (float*)room;  // of a chunk of each warp: [column][row]
  char* const own = room + Warps * kResults * 4 + warp * (Stages * C::kStage);
  const C copies = C::of(w, x, lane, p);
  const auto stage = MatrixStage<T, C, Mt, Nt, Depth>::of(own, 0, 0, Rows - 1, lane);

  Way way = Way::of(warp, K, tiles);
  for (int s = 0; s < Stages - 1; ++s) {
    if (way.tile < tiles) copies.copy_w(own + way.slot * C::kStage, way.tile * Columns, way.k);
    commit_copies();
    way.go_on(K);
  }
  earlier_done();
  way = Way::of(warp, K, tiles);
  for (int s = 0; s < Stages - 1; ++s) {
    if (way.tile < tiles) copies.copy_x(own + way.slot * C::kStage, way.k);
    commit_copies();
    way.go_on(K);
  }

  int slot = 0;
  for (u32 tile = blockIdx.y; tile < tiles; tile += gridDim.y) {
    float totals[kOwn];
#pragma unroll
    for (int i = 0; i < kOwn; ++i) totals[i] = NO_SUM;
    for (u32 k0 = 0; k0 < K; k0 += Warps * MATRIX_CHUNK) {
      float acc[Mt][Nt][4];
      clear(acc, 0.0f);
      const u32 begin = k0 + warp * MATRIX_CHUNK;
      for (u32 k = begin; k < min(begin + MATRIX_CHUNK, K); k += Depth) {
        wait_copies<Stages - 2>();
        __syncwarp();  // all copies of the warp are there, and all have left the slot that is next
        if (way.tile < tiles) {
          copies.copy_w(own + way.slot * C::kStage, way.tile * Columns, way.k);
          copies.copy_x(own + way.slot * C::kStage, way.k);
        }
        commit_copies();
        way.go_on(K);
        stage.add(acc, slot, K - k);
        slot = slot + 1 == Stages ? 0 : slot + 1;
      }
      __syncthreads();  // the sums before are added
      if (begin < K) {
#pragma unroll
        for (int i = 0; i < Mt; ++i)
#pragma unroll
          for (int j = 0; j < Nt; ++j)
#pragma unroll
            for (int r = 0; r < 4; ++r) {
              const u32 row = 8 * j + row_in(lane, r), column = 16 * i + column_in(lane, r);
              if (row < Rows) sums[warp * kResults + column * Rows + row] = acc[i][j][r];
            }
      }
      __syncthreads();
      const u32 chunks = min(u32(Warps), (K - k0 + MATRIX_CHUNK - 1) / MATRIX_CHUNK);
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const u32 at = i * kThreads + threadIdx.x;
        if (kResults % kThreads && at >= kResults) break;
        for (u32 c = 0; c < chunks; ++c) totals[i] = totals[i] + sums[c * kResults + at];
      }
    }
    u32 again = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const u32 at = i * kThreads + threadIdx.x;
      if (kResults % kThreads && at >= kResults) break;
      const u32 row = row0 + at % Rows, n = tile * Columns + at / Rows;
      if (put_if_finite(totals[i], bias, row, n, out, p)) again |= 1u << i;
    }
#pragma unroll 1
    for (u32 i = 0; again >> i; ++i) {
      const u32 at = i * kThreads + threadIdx.x;
      const u32 row = row0 + at % Rows, n = tile * Columns + at / Rows;
      if (again >> i & 1) put_result(plain_chain<F>(x, w, row, n, p), bias, row, n, out, p);
    }
  }
}

// ---------------------------------------------------------------- many rows

template <class F, class X, int Rows, int Columns, int Warps, int Depth, int S16, int S32>
DEV void matrix_many(const X* x, const u16* w, const float* bias, float* out,
                     const ProductParams& p) {
  // A warp has 32 rows of x.
  constexpr int Stages = sizeof(X) == 2 ? S16 : S32, Nt = 4, kAcross = Warps / (Rows / 32);
  constexpr int Mt = Columns / kAcross / 16;
  typedef MatrixTerms<F, X> T;
  typedef MatrixCopies<X, Rows, Columns, Depth, 32 * Warps> C;
  extern __shared__ __align__(128) char room[];
  const u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32, K = p.K;
  const u32 n0 = blockIdx.y * Columns, column = warp % kAcross * (16 * Mt),
            row = warp / kAcross * 32;
  const C copies = C::of(w, x, threadIdx.x, p);
  const auto stage = MatrixStage<T, C, Mt, Nt, Depth>::of(room, column, row, 7, lane);

  for (u32 s = 0; s < Stages - 1; ++s) {
    if (s * Depth < K) copies.copy_w(room + s * C::kStage, n0, s * Depth);
    commit_copies();
  }
  earlier_done();
  for (u32 s = 0; s < Stages - 1; ++s) {
    if (s * Depth < K) copies.copy_x(room + s * C::kStage, s * Depth);
    commit_copies();
  }
  float acc[Mt][Nt][4], totals[Mt][Nt][4];
  clear(acc, 0.0f);
  clear(totals, NO_SUM);
  u32 slot = 0;
  for (u32 k = 0; k < K; k += Depth) {
    wait_copies<Stages - 2>();
    __syncthreads();  // all copies are there, and all have left the slot that is next
    const u32 next = k + (Stages - 1) * Depth, free = slot == 0 ? Stages - 1 : slot - 1;
    if (next < K) {
      copies.copy_w(room + free * C::kStage, n0, next);
      copies.copy_x(room + free * C::kStage, next);
    }
    commit_copies();
    stage.add(acc, slot, K - k);
    slot = slot + 1 == Stages ? 0 : slot + 1;
    if ((k + Depth) % MATRIX_CHUNK && k + Depth < K) continue;
#pragma unroll
    for (int i = 0; i < Mt; ++i)
#pragma unroll
      for (int j = 0; j < Nt; ++j)
#pragma unroll
        for (int r = 0; r < 4; ++r) totals[i][j][r] = totals[i][j][r] + acc[i][j][r];
    clear(acc, 0.0f);
  }

  const u32 row0 = blockIdx.x * Rows + row;
  u64 again = 0;
#pragma unroll
  for (int i = 0; i < Mt; ++i)
#pragma unroll
    for (int j = 0; j < Nt; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const u32 m = row0 + 8 * j + row_in(lane, r), n = n0 + column + 16 * i + column_in(lane, r);
        if (put_if_finite(totals[i][j][r], bias, m, n, out, p))
          again |= u64(1) << (16 * i + 4 * j + r);
      }
#pragma unroll 1
  for (u32 at = 0; at < 16 * Mt && again >> at; ++at) {
    const u32 m = row0 + at / 4 % 4 * 8 + row_in(lane, at % 4);
    const u32 n = n0 + column + at / 16 * 16 + column_in(lane, at % 4);
    if (again >> at & 1) put_result(plain_chain<F>(x, w, m, n, p), bias, m, n, out, p);
  }
}

// ---------------------------------------------------------------- entries

// The places of PRODUCT_OPERANDS that they read; `groups` are to fit on a multiprocessor.
#define MATRIX_ENTRY(name, X, threads, groups)                     \
  extern "C" __global__ void __launch_bounds__(threads, groups)    \
      name(const X* b0, const u16* b1, const float* b4, float* b5, \
           const __grid_constant__ ProductParams b27)
#define MATRIX_ENTRIES(form, name, suffix, F, X, threads, groups, ...) \
  MATRIX_ENTRY(name##_##suffix, X, threads, groups) {                  \
    form<F, X, __VA_ARGS__>(b0, b1, b4, b5, b27);                      \
  }
#define MATRIX_FEW(name, F, X, suffix, rows, columns, warps, ...)                             \
  MATRIX_ENTRIES(matrix_few, name, suffix, F, X, 32 * warps, warps / 4, rows, columns, warps, \
                 __VA_ARGS__)
#define MATRIX_MANY(name, F, X, suffix, rows, columns, warps, ...)                             \
  MATRIX_ENTRIES(matrix_many, name, suffix, F, X, 32 * warps, 8 / warps, rows, columns, warps, \
                 __VA_ARGS__)
