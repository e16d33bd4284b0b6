// Parameters of the quantized products. Flat index i = k * N + n (kn) or n * K + k (nk); group g =
// i / group. zeros is 1 for (code - z) * s, 0 for s * code + b.
#pragma once
struct QuantMatMulParams {
  unsigned M, K, N, nk, group, zeros;
};
static_assert(sizeof(QuantMatMulParams) == 24, "read by kernels of three compilers");
