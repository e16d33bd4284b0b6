// A short convolution along each sequence, channel by channel.
#include "shared/params/causal_conv1d.h"
#include "backends/cpu/kernels/prelude.h"

namespace ISA {

static u32 conv_chunks(const void* params, u32 threads) {
  const CausalConv1dParams& p = *(const CausalConv1dParams*)params;
  return (u32)at_most(chunks_of((u64)p.T * p.C * p.W, kGrain, threads), ((u64)p.C + 15) / 16);
}
// The taps of sixteen channels, [W][16].
static u64 conv_local(const void* params) {
  return (u64)((const CausalConv1dParams*)params)->W * 16 * sizeof(float);
}

static ACCEL_INLINE F16x conv_load(const float* p, int n) {
  return n == 16 ? load(p) : load_n(p, n);
}

// Up to sixteen channels of one sequence: row i of z is a row of state, then a token.
struct ConvColumns {
  float* state;    // [W - 1] rows
  const float* x;  // [tokens] rows
  float* out;
  const float* taps;
  F16x bias;
  bool biased;
  u64 tokens, kept, width;  // kept = W - 1; width of a row
  int n;
};
static ACCEL_INLINE F16x conv_row(const ConvColumns& s, u64 i) {
  return conv_load(i < s.kept ? s.state + i * s.width : s.x + (i - s.kept) * s.width, s.n);
}
static void conv_columns(const ConvColumns& s) {
  for (u64 t = 0; t < s.tokens; ++t) {
    F16x sum = load(s.taps) * conv_row(s, t);
    for (u64 j = 1; j <= s.kept; ++j) sum = sum + load(s.taps + j * 16) * conv_row(s, t + j);
    if (s.biased) sum = sum + s.bias;
    store_n(s.out + t * s.width, sum, s.n);
  }
  // Row i comes from a later one, so none is overwritten before it is read.
  for (u64 i = 0; s.tokens && i < s.kept; ++i)
    store_n(s.state + i * s.width, conv_row(s, s.tokens + i), s.n);
}

static void conv_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const CausalConv1dParams& p = *(const CausalConv1dParams*)a->params;
  const float* x = (const float*)a->buf[0];     // [T, C]
  const float* w = (const float*)a->buf[1];     // [C, W]
  float* state = (float*)a->buf[2];             // [B, W - 1, C]
  const float* bias = (const float*)a->buf[4];  // [C], or null
  const u32* offsets = (const u32*)a->buf[5];   // [B + 1]
  float* out = (float*)a->buf[6];               // [T, C]
  float* taps = (float*)local;
  const Range r = range_of(p.C, 16, chunk, n_chunks);
  for (u64 c = r.lo; c < r.hi; c += 16) {
    const int n = (int)at_most(16, r.hi - c);
    for (u32 j = 0; j < p.W; ++j)
      for (int i = 0; i < 16; ++i) taps[j * 16 + i] = i < n ? w[(c + i) * p.W + j] : 0.0f;
    for (u32 b = 0; b < p.B; ++b) {
      const u64 first = offsets[b];
      ConvColumns s;
      s.kept = p.W - 1;
      s.width = p.C;
      s.state = state + b * s.kept * s.width + c;
      s.x = x + first * s.width + c;
      s.out = out + first * s.width + c;
      s.taps = taps;
      s.biased = bias != nullptr;
      s.bias = bias ? conv_load(bias + c, n) : splat(0.0f);
      s.tokens = offsets[b + 1] - first;
      s.n = n;
      conv_columns(s);
    }
    for (u64 t = offsets[p.B]; t < p.T; ++t) store_n(out + t * p.C + c, splat(0.0f), n);
  }
}

KERNELS_BEGIN(causal_conv1d)
KERNEL_LOCAL(causal_conv1d, conv_chunks, conv_run, conv_local)
KERNELS_END
}  // namespace ISA
