// Activations rounded to int8, order int8_group: sums of a block are exact integers, so they may be
// taken in f32 (below 2^24) and in any grouping; then one chain over the blocks, ascending. The
// first launch rounds the rows into scratch, the second multiplies.
#pragma once
#include "weights.h"

// Scratch: bytes [M, K], then steps and, of the same shape, step * sum, f32 [M, K / group].
struct Rounded {
  device char* q;
  device float* steps;
  device float* sums;
};
static inline Rounded rounded_of(device uchar* scratch, constant ProductParams& p) {
  device float* steps = (device float*)(scratch + ulong(p.M) * p.K);
  return {(device char*)scratch, steps, steps + ulong(p.M) * (p.K / p.group)};
}

// A thread a block. Quotients round half to even: 1.5 * 2^23 leaves a sum's last place at 1.
template <class X>
kernel void round_to_int8(device const X* x [[buffer(0)]],
                          constant ProductParams& p [[buffer(PARAMS)]],
                          device uchar* scratch [[buffer(SCRATCH)]],
                          uint group [[threadgroup_position_in_grid]],
                          uint index [[thread_index_in_threadgroup]]) {
  const ulong block = ulong(group) * kRoundThreads + index;
  if (block >= ulong(p.M) * (p.K / p.group)) return;
  const Rounded to = rounded_of(scratch, p);
  device const X* from = x + block * p.group;
  // Bits of numbers without a sign are in the order of the numbers; infinities and NaN come last.
  uint peak = 0;
  for (uint k = 0; k < p.group; ++k) peak = max(peak, as_type<uint>(widen(from[k])) & 0x7fffffffu);
  const bool finite = peak < 0x7f800000u;
  const float step = as_type<float>(peak) / 127.0f;
  const bool none = !finite || step == 0.0f;
  device uint* q = (device uint*)(to.q + block * p.group);
  int sum = 0;
  for (uint k = 0; k < p.group; k += 4) {
    uint four = 0;
    for (uint i = 0; i < 4; ++i) {
      const float held = none ? 0.0f : min(max(widen(from[k + i]) / step, -127.0f), 127.0f);
      const int whole = as_type<int>(held + 12582912.0f) - 0x4b400000;
      sum += whole;
      four |= (uint(whole) & 255) << (8 * i);
    }
    q[k / 4] = four;
  }
  const float scale = finite ? step : as_type<float>(0x7fc00000u);
  to.steps[block] = scale;
  to.sums[block] = scale * float(sum);
}

// A column has four threads, which share the codes of a block.
#define INT8_DEPTH (R == 1 ? 512 : 256)  // of K at a time, a multiple of every group
#define INT8_GROUPS (INT8_DEPTH / 32)

template <class X, class S, uint R, bool Grouped>
kernel GROUPS(kInt8Threads, R == 1 ? 16 : 12) void int8_rows(PRODUCT_OPERANDS,
                                                             device uchar* scratch
                                                             [[buffer(SCRATCH)]],
                                                             PRODUCT_PLACE) {
  threadgroup float4 staged[R * INT8_DEPTH / 4];
  // Integer sums, [R][groups][columns], in four parts.
  threadgroup float4 parts[R * INT8_GROUPS * kInt8Columns];
  const Part part = part_of<Grouped>(p, segments, group.x, R);
  const uint n0 = group.y * kInt8Columns, K = p.K, N = p.N, of_row = K / p.group;
  if (part.rows == 0) return;
  if (part.padding) return put_zeros(part, out, N, n0, kInt8Columns, index, kInt8Threads);

  const S source = S::of(w, scales, offsets, p);
  const Rounded from = rounded_of(scratch, p);
  const ulong base = ulong(part.expert) * N;
  const uint column = index / 4, place = index % 4;
  const typename S::Row codes = source.row((base + min(n0 + column, N - 1)) * K);
  // The result whose chain this thread continues, where there is one.
  const uint r0 = index / kInt8Columns, c0 = index % kInt8Columns, n = n0 + c0;
  const bool owns = r0 < part.rows && r0 < R && n < N;
  const typename S::Row planes = source.row((base + min(n, N - 1)) * K);
  device const char* q = from.q + ulong(part.m0) * K;
  const ulong at = ulong(part.m0 + (owns ? r0 : 0)) * of_row;
  float a = 0.0f;

  for (uint k0 = 0; k0 < K; k0 += INT8_DEPTH) {
    const uint depth = min(uint(INT8_DEPTH), K - k0), groups = depth / p.group;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint r = 0; r < R; ++r)
      for (uint i = index; i < depth / 4; i += kInt8Threads) {
        char4 four = char4(0);
        if (r < part.rows) four = *(device const char4*)(q + ulong(r) * K + k0 + 4 * i);
        staged[r * (INT8_DEPTH / 4) + i] =
            float4(float(four.x), float(four.y), float(four.z), float(four.w));
      }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint g = 0; g < groups; ++g) {
      float sum[R];
#pragma unroll
      for (uint r = 0; r < R; ++r) sum[r] = 0.0f;
      for (uint run = 0; run < p.group; run += 32) {
        const uint k = g * p.group + run + 8 * place;
        float v[8];
        codes.eight(k0 + k, v);
#pragma unroll
        for (uint r = 0; r < R; ++r) {
          const float4 low = staged[r * (INT8_DEPTH / 4) + k / 4];
          const float4 high = staged[r * (INT8_DEPTH / 4) + k / 4 + 1];
          float s = fma(low.x, v[0], sum[r]);
          s = fma(low.y, v[1], s);
          s = fma(low.z, v[2], s);
          s = fma(low.w, v[3], s);
          s = fma(high.x, v[4], s);
          s = fma(high.y, v[5], s);
          s = fma(high.z, v[6], s);
          sum[r] = fma(high.w, v[7], s);
        }
      }
#pragma unroll
      for (uint r = 0; r < R; ++r)
        ((threadgroup float*)(parts + (r * INT8_GROUPS + g) * kInt8Columns + column))[place] =
            sum[r];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint g = 0; owns && g < groups; ++g) {
      const float4 of = parts[(r0 * INT8_GROUPS + g) * kInt8Columns + c0];
      const uint block = k0 / p.group + g;
      const float s = planes.scale(block);
      a = fma(s * from.steps[at + block], (of.x + of.y) + (of.z + of.w), a);
      if (S::has_offsets()) a = fma(planes.offset(block, s), from.sums[at + block], a);
    }
  }
  if (owns) out[ulong(part.m0 + r0) * N + n] = p.bias ? a + bias[ulong(part.expert) * N + n] : a;
}

#define INT8_PRODUCT(name, Grouped, ...)                                                        \
  template                                                                                      \
      [[host_name(name "_one")]] [[kernel]] decltype(int8_rows<float, __VA_ARGS__, 1, Grouped>) \
          int8_rows<float, __VA_ARGS__, 1, Grouped>;                                            \
  template [[host_name(                                                                         \
      name "_few")]] [[kernel]] decltype(int8_rows<float, __VA_ARGS__, kInt8FewRows, Grouped>)  \
      int8_rows<float, __VA_ARGS__, kInt8FewRows, Grouped>;
