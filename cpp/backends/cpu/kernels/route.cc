// Routing of tokens to experts and back.
#include "shared/params/route.h"
#include "backends/cpu/kernels/prelude.h"

namespace ISA {

// The next place of each expert, and of the slots that belong to none.
static u64 route_shared(const void* params) {
  return 4 * ((u64)((const RouteParams*)params)->experts + 1);
}
static void route_run(const KernelArgs* a, u32, u32, void*) {
  const RouteParams& p = *(const RouteParams*)a->params;
  const u32* ids = (const u32*)a->buf[0];  // [T, k]
  u32* rows = (u32*)a->buf[1];             // [slots]
  u32* counts = (u32*)a->buf[2];           // [experts]
  u32* inverse = (u32*)a->buf[3];          // [slots]
  u32* next = (u32*)a->shared;             // [experts + 1]
  for (u32 e = 0; e < p.experts; ++e) counts[e] = 0;
  for (u32 s = 0; s < p.slots; ++s)
    if (ids[s] < p.experts) ++counts[ids[s]];
  u32 place = 0;
  for (u32 e = 0; e < p.experts; ++e) {
    next[e] = place;
    place += counts[e];
  }
  next[p.experts] = place;
  u32 token = 0, choice = 0;
  for (u32 s = 0; s < p.slots; ++s) {
    const u32 at = next[ids[s] < p.experts ? ids[s] : p.experts]++;
    rows[at] = token;
    inverse[s] = at;
    if (++choice == p.k) choice = 0, ++token;
  }
}

enum { kCombineColumns = 64 };
static u64 combine_units(const CombineParams& p) {
  return (u64)p.T * ((p.N + kCombineColumns - 1) / kCombineColumns);
}
static u32 combine_chunks(const void* params, u32 threads) {
  const CombineParams& p = *(const CombineParams*)params;
  return (u32)at_most(chunks_of((u64)p.T * p.k * p.N, kGrain, threads), combine_units(p));
}
// weight * y for up to 16 columns; a row that y does not have is zero.
static ACCEL_INLINE F16x combine_term(const CombineParams& p, const float* y, u32 row, float weight,
                                      u32 c, int n) {
  const bool inside = row < p.T * p.k;
  return splat(weight) * (inside ? load_n(y + (u64)row * p.N + c, n) : splat(0.0f));
}
static void combine_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const CombineParams& p = *(const CombineParams*)a->params;
  const float* y = (const float*)a->buf[0];       // [T * k, N]
  const u32* inverse = (const u32*)a->buf[1];     // [T * k]
  const float* weight = (const float*)a->buf[2];  // [T, k]
  float* out = (float*)a->buf[3];                 // [T, N]
  const u32 blocks = (p.N + kCombineColumns - 1) / kCombineColumns;
  const Range r = range_of(combine_units(p), 1, chunk, n_chunks);
  for (u64 unit = r.lo; unit < r.hi; ++unit) {
    const u64 t = unit / blocks, first = t * p.k;
    const u32 begin = (u32)(unit % blocks) * kCombineColumns;
    const u32 end = (u32)at_most(begin + kCombineColumns, p.N);
    for (u32 c = begin; c < end; c += 16) {
      const int n = (int)at_most(16, end - c);
      F16x sum = combine_term(p, y, inverse[first], weight[first], c, n);
      for (u32 j = 1; j < p.k; ++j)
        sum = sum + combine_term(p, y, inverse[first + j], weight[first + j], c, n);
      store_n(out + t * p.N + c, sum, n);
    }
  }
}

KERNELS_BEGIN(route)
KERNEL_TWO(route, one_chunk, route_run, nullptr, nullptr, route_shared, nullptr)
KERNEL(combine, combine_chunks, combine_run)
KERNELS_END
}  // namespace ISA
