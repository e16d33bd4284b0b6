// Parameters of the quantized products. Flat index i = k * N + n (kn) or n * K + k (nk); group g =
// i / group. zeros is 1 for (code - z) * s, 0 for s * code + b.
// activations: 0 as they are, 1 rounded to f16, 2 to bf16, 3 to int8.
#pragma once
struct QuantMatMulParams {
  unsigned M, K, N, nk, group, zeros, activations;
};
static_assert(sizeof(QuantMatMulParams) == 28, "read by kernels of three compilers");
