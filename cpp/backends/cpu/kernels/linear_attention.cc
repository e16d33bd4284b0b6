// The gated delta rule. Rows of the state are independent, so a piece of work is sixteen of them
// through all tokens of their sequence: they stay in the nearest cache, and the sums over the keys,
// order lane16, come out sixteen at a time. Padding of q and k is -0 and of the state +0: the
// product -0 leaves every sum as it is.
#include "shared/params/linear_attention.h"
#include "backends/cpu/kernels/prelude.h"

namespace ISA {

enum {
  kTileRows = 16,
#if ACCEL_ISA_avx512
  kTogether = 8,  // rows whose sums are in registers; no bit depends on it
#elif ACCEL_ISA_avx2
  kTogether = 2,
#else
  kTogether = 1,
#endif
};

static u64 linear_units(const LinearAttentionParams& p) {
  return (u64)p.B * p.H * (((u64)p.Dv + kTileRows - 1) / kTileRows);
}
static u32 linear_chunks(const void* params, u32 threads) {
  const LinearAttentionParams& p = *(const LinearAttentionParams*)params;
  const u64 work = (u64)p.T * p.H * p.Dv * p.Dk;
  return (u32)at_most(chunks_of(work, kGrain, threads), linear_units(p));
}
// A tile of the state, then one token's q, k and alpha, all padded to whole vectors.
static u64 linear_local(const void* params) {
  const u64 padded = round_up(((const LinearAttentionParams*)params)->Dk, 16);
  return (kTileRows + 3) * padded * sizeof(float);
}

// n values padded to whole vectors: where they stand if they are that already.
static ACCEL_INLINE const float* padded_row(const float* x, u32 n, float padding, float* to) {
  if (n % 16 == 0) return x;
  for (u32 c = 0; c < n; c += 16) {
    const int rest = (int)at_most(16, n - c);
    store(to + c, select(lanes_below(rest), load_n(x + c, rest), splat(padding)));
  }
  return to;
}

struct LinearTile {
  float* s;  // [kTileRows][padded]
  u64 padded;
  M16x tail;  // lanes of the last vector that hold keys
  bool partial;
};
// What one token brings, padded.
struct LinearToken {
  const float* q;
  const float* k;
  const float* alpha;
  float change[kTileRows];  // beta * (v - u)
};

// Decay: s = alpha * s. Change: s = change * k + s. Then the sums of s times x over the keys.
template <bool Decay, bool Change>
static F16x linear_pass(const LinearTile& tile, const LinearToken& token, const float* x) {
  F16x dots[kTileRows];
  ACCEL_UNROLL for (int g = 0; g < kTileRows; g += kTogether) {
    F16x acc[kTogether];
    ACCEL_UNROLL for (int i = 0; i < kTogether; ++i) acc[i] = splat(0.0f);
    float* rows = tile.s + g * tile.padded;
    for (u64 c = 0; c < tile.padded; c += 16) {
      const F16x xc = load(x + c);
      const bool masked = tile.partial && c + 16 == tile.padded;
      ACCEL_UNROLL for (int i = 0; i < kTogether; ++i) {
        float* at = rows + i * tile.padded + c;
        F16x s = load(at);
        if (Decay) s = load(token.alpha + c) * s;
        if (Change) s = fma(splat(token.change[g + i]), load(token.k + c), s);
        if (Decay || Change) {
          if (masked) s = select(tile.tail, s, splat(0.0f));
          store(at, s);
        }
        acc[i] = fma(xc, s, acc[i]);
      }
    }
    ACCEL_UNROLL for (int i = 0; i < kTogether; ++i) dots[g + i] = acc[i];
  }
  return sums16(dots);
}

// One token: the update, and the result of the tile's rows. v holds the values of n rows.
static ACCEL_INLINE F16x linear_step(const LinearAttentionParams& p, const LinearTile& tile,
                                     LinearToken& token, float beta, const float* v, int n) {
  if (beta == 0.0f) return linear_pass<true, false>(tile, token, token.q);
  F16x change = load_n(v, n);
  if (!p.add) {
    change = change - (p.decay_first ? linear_pass<true, false>(tile, token, token.k)
                                     : linear_pass<false, false>(tile, token, token.k));
  }
  store(token.change, splat(beta) * change);
  if (p.decay_first && !p.add) return linear_pass<false, true>(tile, token, token.q);
  return linear_pass<true, true>(tile, token, token.q);
}

// Rows of the state to the tile's scratch, or back. Rows past the last one are zero.
static void linear_stage(const LinearTile& tile, float* state, u32 Dk, int rows, bool back) {
  for (int i = 0; i < kTileRows; ++i)
    for (u32 c = 0; c < Dk; c += 16) {
      const int n = i < rows ? (int)at_most(16, Dk - c) : 0;
      float* own = tile.s + i * tile.padded + c;
      if (!back) store(own, n ? load_n(state + (u64)i * Dk + c, n) : splat(0.0f));
      else if (n) store_n(state + (u64)i * Dk + c, load(own), n);
    }
}

static void linear_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const LinearAttentionParams& p = *(const LinearAttentionParams*)a->params;
  const float* alpha = (const float*)a->buf[4];
  const float* beta = (const float*)a->buf[5];
  const u32* offsets = (const u32*)a->buf[7];  // [B + 1]
  float* out = (float*)a->buf[8];              // [T, H, Dv]
  const u64 padded = round_up(p.Dk, 16), tiles = ((u64)p.Dv + kTileRows - 1) / kTileRows;
  float* scratch = (float*)local;
  float* token_scratch = scratch + kTileRows * padded;
  const Range r = range_of(linear_units(p), 1, chunk, n_chunks);
  for (u64 unit = r.lo; unit < r.hi; ++unit) {
    const u64 b = unit / tiles / p.H, h = unit / tiles % p.H, row = unit % tiles * kTileRows;
    if (offsets[b] == offsets[b + 1]) continue;
    const int rows = (int)at_most(kTileRows, p.Dv - row);
    float* state = (float*)a->buf[3] + ((b * p.H + h) * p.Dv + row) * p.Dk;
    const bool staged = p.Dk % 16 || rows < kTileRows;
    const LinearTile tile = {staged ? scratch : state, padded, lanes_below((int)(p.Dk % 16)),
                             p.Dk % 16 != 0};
    if (staged) linear_stage(tile, state, p.Dk, rows, false);
    for (u64 t = offsets[b]; t < offsets[b + 1]; ++t) {
      const u64 at = t * p.H + h, gate = t * p.token_gates + h * p.head_gates;
      LinearToken token;
      token.q = padded_row((const float*)a->buf[0] + at * p.Dk, p.Dk, -0.0f, token_scratch);
      token.k =
          padded_row((const float*)a->buf[1] + at * p.Dk, p.Dk, -0.0f, token_scratch + padded);
      float* decays = token_scratch + 2 * padded;
      if (p.key_gates > 1) {
        token.alpha = padded_row(alpha + gate * p.key_gates, p.Dk, 0.0f, decays);
      } else {
        for (u64 c = 0; c < padded; c += 16) store(decays + c, splat(alpha[gate]));
        token.alpha = decays;
      }
      const float* v = (const float*)a->buf[2] + at * p.Dv + row;
      store_n(out + at * p.Dv + row, linear_step(p, tile, token, beta[gate], v, rows), rows);
    }
    if (staged) linear_stage(tile, state, p.Dk, rows, true);
  }
  const u64 total = (u64)offsets[p.B] * p.H * p.Dv;
  const Range zero = range_of((u64)p.T * p.H * p.Dv - total, 16, chunk, n_chunks);
  for (u64 i = zero.lo; i < zero.hi; ++i) out[total + i] = 0.0f;
}

KERNELS_BEGIN(linear_attention)
KERNEL_LOCAL(linear_attention, linear_chunks, linear_run, linear_local)
KERNELS_END
}  // namespace ISA
