// Products of few rows with a weight [N, K], order lane16 (specs/011 section 1), on CUDA. A chain
// cannot be cut along k, so a column has sixteen chains and no more, and a few warps of a
// multiprocessor must keep the memory busy: each warp owns some columns and a ring of stages in
// shared memory, which it fills by asynchronous copies, several stages ahead, across the ends of
// its columns too. Warps wait for nobody but themselves; only x is shared by the group.
//
// Takes M up to the rows of the kernel, K a multiple of 8 (f16, bf16), of 4 (f32), or of 64 over
// groups of 32, and any grid. Weights that do not begin at 16 bytes, or planes not at 4, are read
// one by one: slower, of the same bits.
#pragma once
#include "cuda/edges.h"
#include "cuda/ring_weights.h"
#include "shared/params/product.h"

#define BEHIND_K -0.0f  // of x: times the +0 of a weight there it leaves every sum as it is

// ---------------------------------------------------------------- the ring

// Of one warp. F: the format; Rows of x; Threads a column, 16 / Threads lanes each; Columns a
// thread; Warps of a group; Depth: values of k in a stage; Stages.
template <class F, int Rows, int Threads, int Columns, int Warps, int Depth, int Stages>
struct Ring {
  enum : int {
    kLanes = 16 / Threads,
    kApart = 32 / Threads,
    kOwn = kApart * Columns,
    kGroupColumns = kOwn * Warps,
    kThreads = 32 * Warps,
    kBits = F::format().bits,
    kPlanes = F::format().planes,
    kEntry = F::format().plane_bytes,
    kRow = Depth * kBits / 8,
    kPitch = ring_pitch(F::format(), Depth),
    kGroups = ring_groups(F::format(), Depth),
    kPlane = kGroups * kEntry,  // of a column in a stage
    kStage = kOwn * kPitch,
    kRaw = ring_planes_bytes(F::format(), kOwn, Depth),
    kWarp = ring_warp_bytes(F::format(), kOwn, Depth, Stages),
  };
  static_assert(kRow % 128 == 0 && Depth % F::kStep == 0, "banks and steps");

  const char* w;
  const char* planes[2];
  u32 K, N, tiles, warp, lane;
  char* room;
  u32 tile, k;  // what is asked for next
  int slot;

  DEV Ring of(const void* w, const void* scales, const void* offsets, u32 K, u32 N, char* room) {
    Ring r;
    r.w = (const char*)w, r.planes[0] = (const char*)scales, r.planes[1] = (const char*)offsets;
    r.K = K, r.N = N, r.tiles = (N + kGroupColumns - 1) / kGroupColumns;
    r.warp = threadIdx.x / 32, r.lane = threadIdx.x % 32;
    r.room = room + r.warp * kWarp;
    r.tile = blockIdx.x, r.k = 0, r.slot = 0;
    return r;
  }
  __forceinline__ char* raw() const { return room + Stages * kStage; }
  __forceinline__ float2* pairs() const { return (float2*)(raw() + Stages * kRaw); }

  __forceinline__ void copy_stage() {
    const u32 n0 = tile * kGroupColumns + warp * kOwn;
    const u64 row = u64(K) * kBits / 8;
    const u32 begin = k * kBits / 8, there = u32(row) - begin;
    char* const to = room + slot * kStage;
    constexpr int kPieces = kRow / 16;
#pragma unroll
    for (int i = 0; i < (kOwn * kPieces + 31) / 32; ++i) {
      const u32 id = i * 32 + lane, c = id / kPieces, at = id % kPieces * 16;
      if ((kOwn * kPieces) % 32 && c >= kOwn) break;
      if (at < there)
        copy16(shared_at(to + c * kPitch + at), w + min(n0 + c, N - 1) * row + begin + at);
    }
    if constexpr (kPlanes > 0) copy_planes(n0);
  }
  __forceinline__ void copy_planes(u32 n0) {
    constexpr int kWords = kPlane / 4;
    const u64 row = u64(K / 32) * kEntry;
    const u32 begin = k / 32 * kEntry, there = u32(row) - begin;
    char* const to = raw() + slot * kRaw;
#pragma unroll
    for (int q = 0; q < kPlanes; ++q)
#pragma unroll
      for (int i = 0; i < (kOwn * kWords + 31) / 32; ++i) {
        const u32 id = i * 32 + lane, c = id / kWords, at = id % kWords * 4;
        if ((kOwn * kWords) % 32 && c >= kOwn) break;
        if (at < there)
          copy4(shared_at(to + (q * kOwn + c) * kPlane + at),
                planes[q] + min(n0 + c, N - 1) * row + begin + at);
      }
  }
  // The next stage into the next slot; a group of copies even where nothing is left.
  __forceinline__ void ask() {
    if (tile < tiles) {
      copy_stage();
      k += Depth;
      if (k >= K) k = 0, tile += gridDim.x;
    }
    commit_copies();
    slot = slot + 1 == Stages ? 0 : slot + 1;
  }
};

// ---------------------------------------------------------------- x

// x of all rows, k0 .. k0 + width - 1, widened and rounded; -0 behind K and for rows that are none.
template <int Rows, int T>
DEV void stage_x(const float* x, float* to, u32 k0, u32 width, u32 pitch, const ProductParams& p) {
  const bool wide = p.K % 4 == 0 && u64(x) % 16 == 0;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
    const float* row = x + u64(r) * p.K + k0;
    float* of = to + r * pitch;
    if (!wide || r >= p.M) {
      for (u32 i = threadIdx.x; i < width; i += T)
        of[i] = r < p.M && k0 + i < p.K ? rounded_to(now(row + i), p.activations) : BEHIND_K;
      continue;
    }
    constexpr int kMost = 8;  // reads of a thread on their way at once
    for (u32 base = 0; base < width; base += 4 * T * kMost) {
      float4 v[kMost];
#pragma unroll
      for (int u = 0; u < kMost; ++u) {
        const u32 i = base + 4 * (u * T + threadIdx.x);
        v[u] = make_float4(BEHIND_K, BEHIND_K, BEHIND_K, BEHIND_K);
        if (i < width && k0 + i < p.K) v[u] = now4(row + i);
      }
#pragma unroll
      for (int u = 0; u < kMost; ++u) {
        const u32 i = base + 4 * (u * T + threadIdx.x);
        if (i >= width) break;
        if (p.activations) {
          v[u].x = rounded_to(v[u].x, p.activations), v[u].y = rounded_to(v[u].y, p.activations);
          v[u].z = rounded_to(v[u].z, p.activations), v[u].w = rounded_to(v[u].w, p.activations);
        }
        *(float4*)(of + i) = v[u];
      }
    }
  }
}
template <int Rows, int T>
DEV void stage_x(const u16* x, float* to, u32 k0, u32 width, u32 pitch, const ProductParams& p) {
  for (int r = 0; r < Rows; ++r)
    for (u32 i = threadIdx.x; i < width; i += T)
      to[r * pitch + i] =
          r < p.M && k0 + i < p.K
              ? rounded_to(f16_to_f32(now(x + u64(r) * p.K + k0 + i)), p.activations)
              : BEHIND_K;
}

// ---------------------------------------------------------------- sums

template <int Rows, int Columns, int L>
struct Sums {
  float v[Rows][Columns][L];
  __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int c = 0; c < Columns; ++c)
#pragma unroll
        for (int i = 0; i < L; ++i) v[r][c][i] = 0.0f;
  }
  // xs: of row 0 at this thread's lanes; w: [Columns] by L, `apart` apart.
  __forceinline__ void add(const float* xs, u32 pitch, const float* w, int apart) {
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      u32 x[L];
      load_words<L>((const char*)(xs + r * pitch), x);
#pragma unroll
      for (int c = 0; c < Columns; ++c)
#pragma unroll
        for (int i = 0; i < L; ++i)
          v[r][c][i] = __fmaf_rn(__uint_as_float(x[i]), w[c * apart + i], v[r][c][i]);
    }
  }
  // Lane i adds lane i + h for h = 8, 4, 2, 1; all threads of the warp call it.
  __forceinline__ float tree(int r, int c) const {
    float a[L];
#pragma unroll
    for (int i = 0; i < L; ++i) a[i] = v[r][c][i];
#pragma unroll
    for (int h = 8; h > 0; h /= 2) {
      if (h >= L) {
#pragma unroll
        for (int i = 0; i < L; ++i) a[i] = a[i] + __shfl_xor_sync(0xffffffffu, a[i], h / L);
      } else {
#pragma unroll
        for (int i = 0; i < h; ++i) a[i] = a[i] + a[i + h];
      }
    }
    return a[0];
  }
};

// ---------------------------------------------------------------- a stage

// One stage of one warp, at k0: `from` are this thread's weights in the slot, xs its values of x.
template <class R, class F, int Rows, int Columns>
struct Stage {
  enum : int { L = R::kLanes };
  typedef Sums<Rows, Columns, L> S;
  const char* from;
  const float* xs;
  u32 pitch, place;  // place: of the thread among those of its column

  __forceinline__ void step(S& sums, u32 s) const {
    float w[Columns * L];
#pragma unroll
    for (int c = 0; c < Columns; ++c)
      F::template widen_lanes<L>(from + c * R::kApart * R::kPitch + s * (16 * R::kBits / 8),
                                 w + c * L);
    sums.add(xs + 16 * s, pitch, w, L);
  }
  // Plain weights; left: values of k from k0 on.
  template <int Depth>
  __forceinline__ void add_plain(S& sums, u32 left) const {
    constexpr int kUnroll = Rows * Columns >= 16 ? 2 : Rows * Columns >= 4 ? 4 : 8;
    if (left >= Depth) {
#pragma unroll kUnroll
      for (u32 s = 0; s < Depth / 16; ++s) step(sums, s);
      return;
    }
    const u32 steps = left / 16;
#pragma unroll 2
    for (u32 s = 0; s < steps; ++s) step(sums, s);
    if (left % 16 == 0) return;
    float v[Columns * L];  // what lies behind K in the slot is of another stage
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      F::template widen_lanes<L>(from + c * R::kApart * R::kPitch + steps * (16 * R::kBits / 8),
                                 v + c * L);
#pragma unroll
      for (int i = 0; i < L; ++i)
        if (16 * steps + place * L + i >= left) v[c * L + i] = 0.0f;
    }
    sums.add(xs + 16 * steps, pitch, v, L);
  }
  template <Dequant D>
  __forceinline__ void add_groups(S& sums, const float2* pairs, u32 groups, bool zeros) const {
    constexpr int kUnroll = Rows * Columns >= 4 ? 1 : D == kPlain ? 1 : 4;
#pragma unroll kUnroll
    for (u32 g = 0; g < groups; ++g) {
      float w[Columns * 2 * L];
#pragma unroll
      for (int c = 0; c < Columns; ++c) {
        float* own = w + c * 2 * L;
        F::template codes<L>(from + c * R::kApart * R::kPitch + g * (32 * R::kBits / 8), own);
        const float2 so = pairs[g * R::kOwn + c * R::kApart];
#pragma unroll
        for (int i = 0; i < 2 * L; ++i) own[i] = F::template weight<D>(own[i], so, zeros);
      }
      sums.add(xs + 32 * g, pitch, w, 2 * L);
      sums.add(xs + 32 * g + 16, pitch, w + L, 2 * L);
    }
  }
  // Weights in groups of 32; planes: of the warp's columns in the slot. The warp makes a pair for
  // each group, and where one is not good for the fast way takes the plain one.
  __forceinline__ void add_quantized(S& sums, const char* planes, float2* pairs, u32 own, u32 lane,
                                     u32 left, bool zeros) const {
    const u32 groups = min(u32(R::kGroups), left / 32);
    const auto entry = [&](u32 q, u32 c, u32 g) {
      const char* row = planes + (q * R::kOwn + c) * R::kPlane;
      return F::P::widen(((const typename F::P::T*)row)[g]);
    };
    const auto offset = [&](u32 c, u32 g) {
      return R::kPlanes > 1 ? entry(R::kPlanes - 1, c, g) : 0.0f;
    };
    bool fast = true;
#pragma unroll 4
    for (u32 i = lane; i < R::kOwn * R::kGroups; i += 32) {
      const u32 c = i % R::kOwn, g = i / R::kOwn;
      float2 so;
      const bool good = F::pair(entry(0, c, g), offset(c, g), zeros, so);
      fast = fast && (good || g >= groups);
      pairs[i] = so;
    }
    fast = __all_sync(0xffffffffu, fast);
    __syncwarp();
    if (fast) {
      if (R::kPlanes > 1 && zeros) add_groups<kFastZeros>(sums, pairs + own, groups, true);
      else add_groups<kFastAffine>(sums, pairs + own, groups, false);
      return;
    }
    for (u32 i = lane; i < R::kOwn * R::kGroups; i += 32) {
      const u32 c = i % R::kOwn, g = i / R::kOwn;
      pairs[i] = make_float2(entry(0, c, g), offset(c, g));
    }
    __syncwarp();
    add_groups<kPlain>(sums, pairs + own, groups, zeros);
  }
};

// ---------------------------------------------------------------- the products

DEV void put_result(float sum, const float* bias, u32 row, u32 n, float* out,
                    const ProductParams& p) {
  if (n < p.N && row < p.M) out[u64(row) * p.N + n] = p.bias ? sum + now(bias + n) : sum;
}

DEV float widened(float v) {
  return v;
}
DEV float widened(u16 v) {
  return f16_to_f32(v);
}

// A lane a thread, every operand read one by one.
template <class F, class X>
DEV void nk_unaligned(const X* x, const typename F::W* w, const typename F::P::T* scales,
                      const typename F::P::T* offsets, const float* bias, float* out,
                      const ProductParams& p) {
  earlier_done();
  const u32 lane = threadIdx.x % 16, apart = gridDim.x * blockDim.x / 16;
  const u64 results = u64(p.M) * p.N, first = (blockIdx.x * blockDim.x + threadIdx.x) / 16;
  // Both halves of a warp go on together, because they exchange.
  for (u64 at = first; at - threadIdx.x / 16 % 2 < results; at += apart) {
    const u32 row = u32(at / p.N), n = u32(at % p.N);
    Sums<1, 1, 1> sums;
    sums.clear();
    for (u32 k = lane; at < results && k < (p.K + 15) / 16 * 16; k += 16) {
      const bool in = k < p.K;
      const float v =
          in ? rounded_to(widened(now(x + u64(row) * p.K + k)), p.activations) : BEHIND_K;
      const float weight = in ? F::at(w, scales, offsets, u64(n) * p.K + k, p.zeros) : 0.0f;
      sums.v[0][0][0] = __fmaf_rn(v, weight, sums.v[0][0][0]);
    }
    const float sum = sums.tree(0, 0);
    if (lane == 0 && at < results) put_result(sum, bias, row, n, out, p);
  }
}

template <class F, class X, int Rows, int Threads, int Columns, int Warps, int Depth, int Stages>
DEV void nk_ring(const X* x, const typename F::W* w, const typename F::P::T* scales,
                 const typename F::P::T* offsets, const float* bias, float* out,
                 const ProductParams& p) {
  typedef Ring<F, Rows, Threads, Columns, Warps, Depth, Stages> R;
  typedef Stage<R, F, Rows, Columns> Own;
  extern __shared__ __align__(128) char room[];
  const u64 planes = R::kPlanes > 1 ? u64(scales) | u64(offsets) : R::kPlanes ? u64(scales) : 0;
  if (u64(w) % 16 || planes % 4) return nk_unaligned<F, X>(x, w, scales, offsets, bias, out, p);

  const u32 K = p.K, segment = ring_segment(K, Rows, Depth);
  float* const xs = (float*)room;
  R ring = R::of(w, scales, offsets, K, p.N, room + ring_x_bytes(K, Rows, Depth));
  const u32 lane = ring.lane, place = lane % Threads, own = lane / Threads;
  for (int s = 0; s < Stages - 1; ++s) ring.ask();
  earlier_done();

  u32 slot = 0;
  bool staged = false;
  for (u32 tile = blockIdx.x; tile < ring.tiles; tile += gridDim.x) {
    typename Own::S sums;
    sums.clear();
    for (u32 k0 = 0; k0 < K; k0 += Depth) {
      const u32 inside = k0 % segment;
      if (segment < K ? inside == 0 : !staged) {
        if (staged) __syncthreads();
        const u32 width = min(segment, (K - k0 + 15) / 16 * 16);
        stage_x<Rows, R::kThreads>(x, xs, k0, width, segment, p);
        __syncthreads();
        staged = true;
      }
      wait_copies<Stages - 2>();
      __syncwarp();  // all copies of the warp are there, and all have left the slot that is next
      ring.ask();
      const Own stage = {
          ring.room + slot * R::kStage + own * R::kPitch + place * (R::kLanes * R::kBits / 8),
          xs + inside + place * R::kLanes, segment, place};
      if constexpr (R::kPlanes == 0) stage.template add_plain<Depth>(sums, K - k0);
      else
        stage.add_quantized(sums, ring.raw() + slot * R::kRaw, ring.pairs(), own, lane, K - k0,
                            p.zeros != 0);
      if (++slot == Stages) slot = 0;
    }
    const u32 n0 = tile * R::kGroupColumns + ring.warp * R::kOwn + own;
#pragma unroll
    for (int r = 0; r < Rows; ++r)
#pragma unroll
      for (int c = 0; c < Columns; ++c) {
        const float sum = sums.tree(r, c);
        if (place == 0) put_result(sum, bias, r, n0 + c * R::kApart, out, p);
      }
  }
}

// The entries of one product; the places of PRODUCT_OPERANDS that it reads.
#define RING_ENTRY(name, suffix, F, X, rows, threads, columns, warps, depth, stages)           \
  extern "C" __global__ void __launch_bounds__(32 * warps, 1)                                  \
      name##_##suffix(const X* b0, const F::W* b1, const F::P::T* b2, const F::P::T* b3,       \
                      const float* b4, float* b5, const __grid_constant__ ProductParams b27) { \
    nk_ring<F, X, rows, threads, columns, warps, depth, stages>(b0, b1, b2, b3, b4, b5, b27);  \
  }
