// Parameters of the grouped products: x [T, K], w [experts, K, N] (kn) or [experts, N, K] (nk), out
// [T, N]. Flat index i = (e * K + k) * N + n (kn) or (e * N + n) * K + k (nk); group g = i / group.
// zeros is 1 for (code - z) * s, 0 for s * code + b. The first seven words are those of
// QuantMatMulParams, T being its M.
#pragma once
struct GroupedParams {
  unsigned T, K, N, nk, group, zeros, activations, experts;
};
static_assert(sizeof(GroupedParams) == 32, "read by kernels of three compilers");
