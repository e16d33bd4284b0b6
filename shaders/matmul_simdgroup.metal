// matmul and linear by 8x8 matrices of a SIMD group, for Metal alone: order matrix8, sums in f32
// over k in steps of eight, inside a step as the hardware adds. K and N are multiples of eight. A
// tile of fewer rows is padded with zeros, so a row has the same bits for every M. Operands enter
// exactly: half by half as they are, every other pair widened to f32.
#include "weights.h"

#include <metal_simdgroup_matrix>

#define MATRIX_DEPTH 32  // of K at a time

// Four values from `from`, or zeros.
template <class T, class F>
static inline void put_four(device const F* from, bool there, bool wide, threadgroup T* to) {
  float v[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  if (there) widen_four(from, wide, v);
  for (uint i = 0; i < 4; ++i) to[i] = T(v[i]);
}

// Rows by 32 columns, four SIMD groups: side by side for eight rows, two by two for 32.
template <class X, class S, class T, bool NK, uint Rows>
kernel void matrix8(PRODUCT_OPERANDS, PRODUCT_PLACE,
                    uint simd_group [[simdgroup_index_in_threadgroup]]) {
  const uint columns = kMatrixColumns, depth = MATRIX_DEPTH;
  const uint stride = depth + 16 / sizeof(T), across = columns + 16 / sizeof(T);
  const uint high = Rows == 8 ? 1 : 2;  // matrices of a SIMD group, down and across
  threadgroup T xs[Rows * (MATRIX_DEPTH + 16 / sizeof(T))];
  threadgroup T ws[kMatrixColumns * (MATRIX_DEPTH + 16 / sizeof(T))];  // [n][k] of nk, [k][n] of kn
  threadgroup float sums[Rows * kMatrixColumns];
  const uint m0 = group.x * Rows, n0 = group.y * columns, K = p.K, N = p.N;
  const bool x_wide = fours_are_aligned(x, K), w_wide = fours_are_aligned(w, NK ? K : N);
  const uint down = Rows == 8 ? 0 : simd_group / 2 * 16;
  const uint right = Rows == 8 ? simd_group * 8 : simd_group % 2 * 16;

  simdgroup_matrix<float, 8, 8> a[high][high];
  for (uint i = 0; i < high; ++i)
    for (uint j = 0; j < high; ++j) a[i][j] = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
  for (uint k0 = 0; k0 < K; k0 += depth) {
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint i = index; i < Rows * depth / 4; i += kMatrixThreads) {
      const uint r = i / (depth / 4), k = i % (depth / 4) * 4;
      put_four(x + ulong(m0 + r) * K + k0 + k, m0 + r < p.M && k0 + k < K, x_wide,
               xs + r * stride + k);
    }
    for (uint i = index; i < columns * depth / 4; i += kMatrixThreads) {
      // The four lie along k in nk, along n in kn.
      const uint line = i / (depth / 4), four = i % (depth / 4) * 4;
      const uint n = n0 + (NK ? line : four), k = k0 + (NK ? four : line);
      put_four(w + (NK ? ulong(n) * K + k : ulong(k) * N + n), n < N && k < K, w_wide,
               ws + line * (NK ? stride : across) + four);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint k = 0; k < min(depth, K - k0); k += 8) {
      simdgroup_matrix<T, 8, 8> xm[high], wm[high];
      for (uint i = 0; i < high; ++i) {
        const uint n = right + 8 * i;
        simdgroup_load(xm[i], xs + (down + 8 * i) * stride + k, stride);
        if (NK) simdgroup_load(wm[i], ws + n * stride + k, stride, ulong2(0, 0), true);
        else simdgroup_load(wm[i], ws + k * across + n, across);
      }
      for (uint i = 0; i < high; ++i)
        for (uint j = 0; j < high; ++j)
          simdgroup_multiply_accumulate(a[i][j], xm[i], wm[j], a[i][j]);
    }
  }
  for (uint i = 0; i < high; ++i)
    for (uint j = 0; j < high; ++j)
      simdgroup_store(a[i][j], sums + (down + 8 * i) * columns + right + 8 * j, columns);
  threadgroup_barrier(mem_flags::mem_threadgroup);
  for (uint i = index; i < Rows * columns; i += kMatrixThreads) {
    const uint m = m0 + i / columns, n = n0 + i % columns;
    if (m < p.M && n < N) out[ulong(m) * N + n] = p.bias ? sums[i] + bias[n] : sums[i];
  }
}

#define MATRIX_FUNCTION(name, ...) \
  template [[host_name(name)]] [[kernel]] decltype(__VA_ARGS__) __VA_ARGS__;
#define MATRIX_PRODUCT(name, NK, X, W, T)                                          \
  MATRIX_FUNCTION(name "_few", matrix8<X, FloatWeights<W>, T, NK, kMatrixFewRows>) \
  MATRIX_FUNCTION(name "_many", matrix8<X, FloatWeights<W>, T, NK, kMatrixManyRows>)

MATRIX_PRODUCT("matmul_matrix8_nk_f32_f32", true, float, float, float)
MATRIX_PRODUCT("matmul_matrix8_nk_f32_f16", true, float, half, float)
MATRIX_PRODUCT("matmul_matrix8_nk_f32_bf16", true, float, ushort, float)
MATRIX_PRODUCT("matmul_matrix8_nk_f16_f16", true, half, half, half)
MATRIX_PRODUCT("matmul_matrix8_nk_f16_bf16", true, half, ushort, float)
MATRIX_PRODUCT("matmul_matrix8_kn_f32_f32", false, float, float, float)
MATRIX_PRODUCT("matmul_matrix8_kn_f32_f16", false, float, half, float)
MATRIX_PRODUCT("matmul_matrix8_kn_f32_bf16", false, float, ushort, float)
MATRIX_PRODUCT("matmul_matrix8_kn_f16_f16", false, half, half, half)
MATRIX_PRODUCT("matmul_matrix8_kn_f16_bf16", false, half, ushort, float)
