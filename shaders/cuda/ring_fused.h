// Products of one row by the rings of ring.h with what stands around them in a decode step, of the
// bits of the launches that they replace: x rms-normed while it is brought to shared memory, up to
// three weights of one x, swiglu of two of them, a residual added at the store. Weights are on
// their way before any of it is waited for, so the norm costs little.
//
// With a norm the row is in shared memory as a whole (K up to RING_X_FLOATS). The residual may be
// the memory of the result: an element is read and written by one thread. x may not.
#pragma once
#include "cuda/ring.h"
#include "shared/params/fused_product.h"

// swiglu as its shader has it.
namespace shader {
#include "shared/math/scalar.h"
// Each needs those before it.
// clang-format off
#include "shared/math/exp.h"
#include "shared/math/activations.h"
// clang-format on
}  // namespace shader

// ---------------------------------------------------------------- operands

template <class W, class S>
struct FusedPart {
  const W* w;
  const S *scales, *offsets;
  float* out;
};
template <class F>
struct FusedOperands {
  const float *x, *gain, *residual;
  FusedPart<typename F::W, typename F::P::T> part[3];
};

// One of three by choice: an index would put them into memory.
template <class T>
DEV T of_three(u32 i, T a, T b, T c) {
  return i == 0 ? a : i == 1 ? b : c;
}
template <class F>
DEV FusedPart<typename F::W, typename F::P::T> part_of(const FusedOperands<F>& o, u32 i) {
  const auto &a = o.part[0], &b = o.part[1], &c = o.part[2];
  return {of_three(i, a.w, b.w, c.w), of_three(i, a.scales, b.scales, c.scales),
          of_three(i, a.offsets, b.offsets, c.offsets), of_three(i, a.out, b.out, c.out)};
}
// Weights at 16 bytes, planes at 4.
template <class F>
DEV bool fused_aligned(const FusedOperands<F>& o, const FusedProductParams& p) {
  constexpr u32 kPlanes = F::format().planes;
  bool good = true;
#pragma unroll
  for (u32 i = 0; i < 3; ++i) {
    if (i >= p.parts) continue;
    good = good && u64(o.part[i].w) % 16 == 0;
    if (kPlanes > 0) good = good && u64(o.part[i].scales) % 4 == 0;
    if (kPlanes > 1) good = good && u64(o.part[i].offsets) % 4 == 0;
  }
  return good;
}

// ---------------------------------------------------------------- x

// Of 16 bytes of each thread, on their way at once: the registers of a large group are few.
DEV constexpr int gains_of(int threads) {
  return threads >= 256 ? 4 : 8;
}

template <int T>
DEV void read_gains(const float* gain, u32 left, float4 (&to)[gains_of(T)]) {
#pragma unroll
  for (int u = 0; u < gains_of(T); ++u) {
    const u32 i = 4 * (u * T + threadIdx.x);
    if (i < left) to[u] = now4(gain + i);
  }
}

// The factor of rms_norm, for a whole warp: its halves do the same. What stands behind K squares to
// +0, which changes no sum of squares. Reads of the next steps go on while those before are added.
DEV float norm_scale(const float* xs, u32 K, float eps) {
  constexpr u32 kAhead = 16;
  const u32 steps = (K + 15) / 16, lane = threadIdx.x % 16;
  const auto read = [&](u32 from, float(&to)[kAhead]) {
#pragma unroll
    for (u32 u = 0; u < kAhead; ++u)
      to[u] = from + u < steps ? xs[16 * (from + u) + lane] : BEHIND_K;
  };
  float own[kAhead], next[kAhead], a = 0.0f;
  read(0, own);
  for (u32 s = 0; s < steps; s += kAhead) {
    read(s + kAhead, next);
#pragma unroll
    for (u32 u = 0; u < kAhead; ++u) {
      a = __fmaf_rn(own[u], own[u], a);
      own[u] = next[u];
    }
  }
#pragma unroll
  for (int h = 8; h > 0; h /= 2) a = a + __shfl_xor_sync(0xffffffffu, a, h);
  return 1.0f / __fsqrt_rn(a / float(K) + eps);
}

// x of the whole row, in shared memory, becomes what rms_norm stores.
template <int T>
DEV void norm_x(float* xs, float* scale_at, const float* gain, bool wide,
                float4 (&gains)[gains_of(T)], const FusedProductParams& p) {
  if (threadIdx.x < 32) {
    const float scale = norm_scale(xs, p.K, p.eps);
    if (threadIdx.x == 0) *scale_at = scale;
  }
  __syncthreads();
  const float scale = *scale_at;
  if (!wide) {
    for (u32 i = threadIdx.x; i < p.K; i += T) xs[i] = xs[i] * scale * now(gain + i);
  } else {
    constexpr int kMost = gains_of(T);
    for (u32 base = 0; base < p.K; base += 4 * T * kMost) {
      if (base) read_gains<T>(gain + base, p.K - base, gains);
#pragma unroll
      for (int u = 0; u < kMost; ++u) {
        const u32 i = base + 4 * (u * T + threadIdx.x);
        if (i >= p.K) break;
        float4 v = *(const float4*)(xs + i);
        v.x = v.x * scale * gains[u].x, v.y = v.y * scale * gains[u].y;
        v.z = v.z * scale * gains[u].z, v.w = v.w * scale * gains[u].w;
        *(float4*)(xs + i) = v;
      }
    }
  }
  __syncthreads();
}

// x as the products read it, k0 .. k0 + width - 1; all threads of the group call it.
template <int T>
DEV void stage_fused(const float* x, const float* gain, float* xs, float* scale_at, u32 k0,
                     u32 width, u32 segment, const FusedProductParams& p) {
  const bool wide = p.K % 4 == 0 && u64(gain) % 16 == 0;
  float4 gains[gains_of(T)];
  if (p.norm && wide) read_gains<T>(gain, p.K, gains);
  ProductParams of = {};
  of.M = 1, of.K = p.K;
  stage_x<1, T>(x, xs, k0, width, segment, of);
  __syncthreads();
  if (p.norm) norm_x<T>(xs, scale_at, gain, wide, gains, p);
  if (!p.activations) return;
  for (u32 i = threadIdx.x; i < width; i += T) xs[i] = rounded_to(xs[i], p.activations);
  __syncthreads();
}

// ---------------------------------------------------------------- the order of tiles

// Tiles of all parts, one part after another; of a pair those of gate, and at each the same tile of
// up before the next.
template <int Columns>
struct FusedTiles {
  u32 first, second, units;  // of the parts 1 and 2
  u32 pair;
  DEV FusedTiles of(const FusedProductParams& p) {
    FusedTiles t;
    t.pair = p.pair;
    t.first = (p.N[0] + Columns - 1) / Columns;
    t.second = t.first + (p.N[1] + Columns - 1) / Columns;
    t.units = p.pair ? t.first : t.second + (p.N[2] + Columns - 1) / Columns;
    return t;
  }
};
struct FusedWalk {
  u32 unit, up;  // up: of a pair, the second of its tiles
  template <class T>
  __forceinline__ u32 part(const T& t) const {
    return t.pair ? up : u32(unit >= t.first) + u32(unit >= t.second);
  }
  template <class T>
  __forceinline__ u32 tile(const T& t) const {
    return t.pair ? unit : unit - of_three(part(t), 0u, t.first, t.second);
  }
  template <class T>
  __forceinline__ void step(const T& t) {
    if (t.pair && !up) up = 1;
    else up = 0, unit += gridDim.x;
  }
};

// A ring that goes through the tiles of all parts.
template <class F, class R, int Depth, int Stages>
struct FusedRing {
  typedef FusedTiles<R::kGroupColumns> Tiles;
  const FusedOperands<F>& operands;
  const FusedProductParams& p;
  Tiles tiles;
  R ring;
  FusedWalk asked;

  __forceinline__ void enter() {
    const u32 i = asked.part(tiles);
    const auto part = part_of(operands, i);
    ring.w = (const char*)part.w;
    if (R::kPlanes > 0) ring.planes[0] = (const char*)part.scales;
    if (R::kPlanes > 1) ring.planes[1] = (const char*)part.offsets;
    ring.N = of_three(i, p.N[0], p.N[1], p.N[2]);
    ring.tile = asked.tile(tiles);
  }
  // The next stage into the next slot; a group of copies even where nothing is left.
  __forceinline__ void ask() {
    if (asked.unit < tiles.units) {
      ring.copy_stage();
      ring.k += Depth;
      if (ring.k >= ring.K) {
        ring.k = 0;
        asked.step(tiles);
        enter();
      }
    }
    commit_copies();
    ring.slot = ring.slot + 1 == Stages ? 0 : ring.slot + 1;
  }
};

// ---------------------------------------------------------------- the products

// Weights read one by one, as in nk_unaligned.
template <class F, int T>
DEV void nk_fused_unaligned(const FusedOperands<F>& o, const FusedProductParams& p, float* xs,
                            float* scale_at, u32 segment) {
  earlier_done();
  const u32 whole = (p.K + 15) / 16 * 16, lane = threadIdx.x % 16, apart = gridDim.x * (T / 16);
  const bool staged = whole <= segment;
  if (staged) stage_fused<T>(o.x, o.gain, xs, scale_at, 0, whole, segment, p);
  const u32 results = p.pair ? p.N[0] : p.N[0] + p.N[1] + p.N[2];
  // Both halves of a warp go on together, because they exchange.
  for (u32 at = (blockIdx.x * T + threadIdx.x) / 16; at - threadIdx.x / 16 % 2 < results;
       at += apart) {
    const bool in = at < results;
    u32 part = 0, n = at;
    if (!p.pair) {
      part = u32(at >= p.N[0]) + u32(at >= p.N[0] + p.N[1]);
      n -= of_three(part, 0u, p.N[0], p.N[0] + p.N[1]);
    }
    float gate = 0.0f, sum = 0.0f;
    for (u32 up = 0; up <= p.pair; ++up) {
      const auto of = part_of(o, p.pair ? up : part);
      Sums<1, 1, 1> sums;
      sums.clear();
      for (u32 k = lane; in && k < whole; k += 16) {
        float v = BEHIND_K;
        if (staged) v = xs[k];
        else if (k < p.K) v = rounded_to(now(o.x + k), p.activations);
        const float weight =
            k < p.K ? F::at(of.w, of.scales, of.offsets, u64(n) * p.K + k, p.zeros) : 0.0f;
        sums.v[0][0][0] = __fmaf_rn(v, weight, sums.v[0][0][0]);
      }
      gate = sum;
      sum = sums.tree(0, 0);
    }
    if (lane != 0 || !in) continue;
    if (p.residual && part == 0) sum = sum + now(o.residual + n);
    part_of(o, part).out[n] = p.pair ? shader::math_swiglu(gate, sum) : sum;
  }
}

template <class F, int Rows, int Threads, int Columns, int Warps, int Depth, int Stages>
DEV void nk_fused(const FusedOperands<F>& o, const FusedProductParams& p) {
  static_assert(Rows == 1, "the other rings have no fused kernel");
  typedef Ring<F, 1, Threads, Columns, Warps, Depth, Stages> R;
  typedef Stage<R, F, 1, Columns> Own;
  extern __shared__ __align__(128) char room[];
  const u32 K = p.K, segment = ring_segment(K, 1, Depth);
  float* const xs = (float*)room;
  char* const behind = room + ring_x_bytes(K, 1, Depth);
  float* const scale_at = (float*)behind;
  if (!fused_aligned(o, p)) return nk_fused_unaligned<F, R::kThreads>(o, p, xs, scale_at, segment);

  FusedRing<F, R, Depth, Stages> ring = {
      o,
      p,
      FusedTiles<R::kGroupColumns>::of(p),
      R::of(nullptr, nullptr, nullptr, K, 0, behind + RING_NORM_BYTES),
      {blockIdx.x, 0}};
  ring.enter();
  const u32 lane = ring.ring.lane, place = lane % Threads, own = lane / Threads;
  for (int s = 0; s < Stages - 1; ++s) ring.ask();
  earlier_done();

  u32 slot = 0;
  bool staged = false;
  float gate[Columns];
  for (FusedWalk at = {blockIdx.x, 0}; at.unit < ring.tiles.units; at.step(ring.tiles)) {
    const u32 part = at.part(ring.tiles), N = of_three(part, p.N[0], p.N[1], p.N[2]);
    const u32 n0 = at.tile(ring.tiles) * R::kGroupColumns + ring.ring.warp * R::kOwn + own;
    const bool adds = p.residual && part == 0;
    float more[Columns];
#pragma unroll
    for (int c = 0; c < Columns; ++c)
      if (adds && place == 0 && n0 + c * R::kApart < N)
        more[c] = now(o.residual + n0 + c * R::kApart);
    typename Own::S sums;
    sums.clear();
    for (u32 k0 = 0; k0 < K; k0 += Depth) {
      const u32 inside = k0 % segment;
      if (segment < K ? inside == 0 : !staged) {
        if (staged) __syncthreads();
        const u32 width = min(segment, (K - k0 + 15) / 16 * 16);
        stage_fused<R::kThreads>(o.x, o.gain, xs, scale_at, k0, width, segment, p);
        staged = true;
      }
      wait_copies<Stages - 2>();
      __syncwarp();  // all copies of the warp are there, and all have left the slot that is next
      ring.ask();
      const Own stage = {
          ring.ring.room + slot * R::kStage + own * R::kPitch + place * (R::kLanes * R::kBits / 8),
          xs + inside + place * R::kLanes, segment, place};
      if constexpr (R::kPlanes == 0) stage.template add_plain<Depth>(sums, K - k0);
      else
        stage.add_quantized(sums, ring.ring.raw() + slot * R::kRaw, ring.ring.pairs(), own, lane,
                            K - k0, p.zeros != 0);
      if (++slot == Stages) slot = 0;
    }
    float* const out = of_three(p.pair ? 0u : part, o.part[0].out, o.part[1].out, o.part[2].out);
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      const float sum = sums.tree(0, c);
      const u32 n = n0 + c * R::kApart;
      if (place == 0 && n < N && (!p.pair || at.up))
        out[n] = p.pair ? shader::math_swiglu(gate[c], sum) : adds ? sum + more[c] : sum;
      gate[c] = sum;
    }
  }
}

// An entry; the places of FusedProduct (cpp/ops/fused_product.h).
#define FUSED_PART(F, w, s, o, out) const F::W *w, const F::P::T *s, const F::P::T *o, float *out
#define FUSED_ENTRY(name, suffix, F, rows, threads, columns, warps, depth, stages)           \
  extern "C" __global__ void __launch_bounds__(32 * warps, warps < 8 ? 1 : 2)                \
      name##_##suffix##_fused(const float* b0, const float* b1, const float* b2,             \
                              FUSED_PART(F, b3, b4, b5, b6), FUSED_PART(F, b7, b8, b9, b10), \
                              FUSED_PART(F, b11, b12, b13, b14),                             \
                              const __grid_constant__ FusedProductParams b27) {              \
    nk_fused<F, rows, threads, columns, warps, depth, stages>(                               \
        {b0, b1, b2, {{b3, b4, b5, b6}, {b7, b8, b9, b10}, {b11, b12, b13, b14}}}, b27);     \
  }
