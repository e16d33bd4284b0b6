// Products with a weight [N, K], order lane16 (specs/011 section 1). Four neighbouring threads, a
// quad, hold the sixteen lanes of a result, thread j the lanes 4 j .. 4 j + 3 in a register each:
// it reads four weights that lie side by side, half a word of int4. The tree ends in threadgroup
// memory. x is staged there, widened and rounded, with -0 behind K.
#pragma once
#include "weights.h"

#define QUAD_STEP 16  // values of K that a quad takes at a time

// Of R rows by C columns, four lanes each.
template <uint R, uint C>
struct Lanes {
  float v[R][C][4];
};

// x4: the rows' four values at this thread's place, `stride` apart; w: [C] by four, `apart` apart.
template <uint R, uint C>
static inline void add_four(thread Lanes<R, C>& a, threadgroup const float4* x4, uint stride,
                            thread const float* w, uint apart) {
#pragma unroll
  for (uint r = 0; r < R; ++r) {
    const float4 xs = x4[r * stride];
#pragma unroll
    for (uint c = 0; c < C; ++c) {
      a.v[r][c][0] = fma(xs.x, w[c * apart], a.v[r][c][0]);
      a.v[r][c][1] = fma(xs.y, w[c * apart + 1], a.v[r][c][1]);
      a.v[r][c][2] = fma(xs.z, w[c * apart + 2], a.v[r][c][2]);
      a.v[r][c][3] = fma(xs.w, w[c * apart + 3], a.v[r][c][3]);
    }
  }
}

// Where results go: row `row + r`, column `column + c * step`.
struct Place {
  uint row, rows, column, step, N;
  device const float* bias;  // of the expert, read where has_bias
  bool has_bias;
};

// The trees of a quad's results, four at a time, one a thread. slots: four float4 a thread of the
// SIMD group, which alone uses them.
template <uint R, uint C>
static inline void put_results(const thread Lanes<R, C>& a, threadgroup float4* slots, uint lane,
                               Place at, device float* out) {
  const uint j = lane % 4;
#pragma unroll
  for (uint q0 = 0; q0 < R * C; q0 += 4) {
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
      const uint q = q0 + i;
      if (q < R * C)
        slots[i * 32 + lane] = float4(a.v[q / C][q % C][0], a.v[q / C][q % C][1],
                                      a.v[q / C][q % C][2], a.v[q / C][q % C][3]);
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
    const uint q = q0 + j, n = at.column + q % C * at.step, m = at.row + q / C;
    if (q < R * C && n < at.N && m < at.rows) {
      threadgroup const float4* of = slots + j * 32 + (lane - j);
      const float4 v0 = of[0], v1 = of[1], v2 = of[2], v3 = of[3];
      const float x = (v0.x + v2.x) + (v1.x + v3.x), y = (v0.y + v2.y) + (v1.y + v3.y);
      const float z = (v0.z + v2.z) + (v1.z + v3.z), w = (v0.w + v2.w) + (v1.w + v3.w);
      const float sum = (x + z) + (y + w);
      out[ulong(m) * at.N + n] = at.has_bias ? sum + at.bias[n] : sum;
    }
    simdgroup_barrier(mem_flags::mem_threadgroup);
  }
}

// ---------------------------------------------------------------- few rows

#define FEW_QUADS (kNkThreads / 4)
#define FEW_FLOATS 1024  // of x at a time

// What a thread adds of 64 values of K at a time, four steps on their way at once; up to where it
// came. Flag is that of the rows.
template <bool Flag, class Row, uint R, uint C>
static inline uint add_steps(thread Lanes<R, C>& a, thread const Row* row,
                             threadgroup const float4* x4, uint stride, uint k0, uint depth,
                             uint place) {
  uint k = 0;
  for (; k + 64 <= depth; k += 64) {
    float v[C * 16];
#pragma unroll
    for (uint c = 0; c < C; ++c) {
      row[c].pair(k0 + k + 4 * place, Flag, v + 16 * c);
      row[c].pair(k0 + k + 32 + 4 * place, Flag, v + 16 * c + 8);
    }
#pragma unroll
    for (uint s = 0; s < 4; ++s) add_four<R, C>(a, x4 + k / 4 + 4 * s, stride, v + 4 * s, 16);
  }
  return k;
}

// R rows of x by C columns a quad: the weight passes from memory through registers, read once for R
// rows.
template <class X, class S, uint R, uint C, bool Grouped>
kernel GROUPS(kNkThreads, R == 1 ? 16 : 6) void nk_few(PRODUCT_OPERANDS, PRODUCT_PLACE) {
  threadgroup float4 room[FEW_FLOATS / 4];
  const Part part = part_of<Grouped>(p, segments, group.x, R);
  const uint n0 = group.y * FEW_QUADS * C, K = p.K;
  if (part.rows == 0) return;
  if (part.padding) return put_zeros(part, out, p.N, n0, FEW_QUADS * C, index, kNkThreads);

  const S source = S::of(w, scales, offsets, p);
  const uint column = n0 + index / 4, place = index % 4;
  typename S::Row row[C];
  Lanes<R, C> a;
#pragma unroll
  for (uint c = 0; c < C; ++c) {
    const uint n = min(column + c * FEW_QUADS, p.N - 1);
    row[c] = source.row((ulong(part.expert) * p.N + n) * K);
#pragma unroll
    for (uint r = 0; r < R; ++r)
      for (uint i = 0; i < 4; ++i) a.v[r][c][i] = 0.0f;
  }

  const uint most = FEW_FLOATS / R;
  device const X* rows = x + ulong(part.m0) * K;
  threadgroup float* staged = (threadgroup float*)room;
  for (uint k0 = 0; k0 < K; k0 += most) {
    const uint depth = min(most, K - k0), width = (depth + QUAD_STEP - 1) / QUAD_STEP * QUAD_STEP;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = 0; r < R; ++r)
      for (uint k = index; k < width; k += kNkThreads)
        staged[r * most + k] = r < part.rows && k < depth
                                   ? rounded(widen(rows[ulong(r) * K + k0 + k]), p.activations)
                                   : BEYOND_X;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    threadgroup const float4* x4 = room + place;
    uint k = row[0].flag()
                 ? add_steps<true, typename S::Row, R, C>(a, row, x4, most / 4, k0, depth, place)
                 : add_steps<false, typename S::Row, R, C>(a, row, x4, most / 4, k0, depth, place);
    for (; k < depth; k += QUAD_STEP) {
      float v[C * 4];
#pragma unroll
      for (uint c = 0; c < C; ++c) row[c].four(k0 + k + 4 * place, v + 4 * c);
      add_four<R, C>(a, x4 + k / 4, most / 4, v, 4);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const Place at = {
      part.m0,    part.m0 + part.rows, column, FEW_QUADS, p.N, bias + ulong(part.expert) * p.N,
      p.bias != 0};
  put_results<R, C>(a, room + index / 32 * 128, index % 32, at, out);
}

// ---------------------------------------------------------------- many rows

#define TILE kNkManyRows            // rows, columns, and values of K at a time
#define TILE_STRIDE (TILE / 4 + 4)  // float4s; two neighbouring rows fall into different banks

// 32 rows by 32 columns; weights are dequantised once a tile and staged beside x. A quad owns four
// rows by four columns.
template <class X, class S, bool Grouped>
kernel void nk_tile(PRODUCT_OPERANDS, PRODUCT_PLACE) {
  threadgroup float4 room[4 * kNkManyThreads];  // the trees take more than the tile
  const Part part = part_of<Grouped>(p, segments, group.x, TILE);
  const uint n0 = group.y * TILE, K = p.K;
  if (part.rows == 0) return;
  if (part.padding) return put_zeros(part, out, p.N, n0, TILE, index, kNkManyThreads);

  // What this thread stages: four values of a row and of a column.
  const uint of = index / 8, at4 = index % 8, n = n0 + of;
  const S source = S::of(w, scales, offsets, p);
  const typename S::Row column = source.row((ulong(part.expert) * p.N + min(n, p.N - 1)) * K);
  device const X* row = x + ulong(part.m0 + min(of, part.rows - 1)) * K;
  const bool wide = fours_are_aligned(row, K);
  threadgroup float4* x_to = room + of * TILE_STRIDE + at4;
  threadgroup float4* w_to = x_to + TILE * TILE_STRIDE;
  // What it multiplies.
  const uint quad = index / 4, place = index % 4, first_row = quad / 8 * 4, first_column = quad % 8;
  threadgroup const float4* x4 = room + first_row * TILE_STRIDE + place;
  threadgroup const float4* w4 = room + (TILE + first_column) * TILE_STRIDE + place;

  Lanes<4, 4> a;
#pragma unroll
  for (uint r = 0; r < 4; ++r)
#pragma unroll
    for (uint c = 0; c < 4; ++c)
      for (uint i = 0; i < 4; ++i) a.v[r][c][i] = 0.0f;
  for (uint k0 = 0; k0 < K; k0 += TILE) {
    const uint k = k0 + 4 * at4;
    float xs[4], ws[4];
    column.four(k, ws);
    if (k + 4 <= K) {
      widen_four(row + k, wide, xs);
      for (uint i = 0; i < 4; ++i) xs[i] = rounded(xs[i], p.activations);
    } else {
      for (uint i = 0; i < 4; ++i)
        xs[i] = k + i < K ? rounded(widen(row[k + i]), p.activations) : BEYOND_X;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    *x_to = float4(xs[0], xs[1], xs[2], xs[3]);
    *w_to = float4(ws[0], ws[1], ws[2], ws[3]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll 1  // 128 registers are enough for one step
    for (uint s = 0; s < TILE / 4; s += 4) {
      float v[16];
#pragma unroll
      for (uint c = 0; c < 4; ++c) {
        const float4 four = w4[c * 8 * TILE_STRIDE + s];
        v[4 * c] = four.x, v[4 * c + 1] = four.y, v[4 * c + 2] = four.z, v[4 * c + 3] = four.w;
      }
      add_four<4, 4>(a, x4 + s, TILE_STRIDE, v, 4);
    }
  }
  threadgroup_barrier(mem_flags::mem_threadgroup);
  const Place at = {part.m0 + first_row,
                    part.m0 + part.rows,
                    n0 + first_column,
                    8,
                    p.N,
                    bias + ulong(part.expert) * p.N,
                    p.bias != 0};
  put_results<4, 4>(a, room + index / 32 * 128, index % 32, at, out);
}
