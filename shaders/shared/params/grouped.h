// Parameters of the grouped products: x [T, K], w [experts, K, N] (kn) or [experts, N, K] (nk), out
// [T, N]. Flat index i = (e * K + k) * N + n (kn) or (e * N + n) * K + k (nk); group g = i / group.
// zeros is 1 for (code - z) * s, 0 for s * code + b.
#pragma once
struct GroupedParams {
  unsigned T, K, N, nk, experts, group, zeros;
};
static_assert(sizeof(GroupedParams) == 28, "read by kernels of three compilers");
