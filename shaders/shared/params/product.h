// Parameters of the matrix products: x [M, K], w [K, N] (kn) or [N, K] (nk), out [M, N]; of grouped
// ones M is the rows of all experts, and w has `experts` such parts. The flat index of a weight is
// k * N + n (kn) or n * K + k (nk), of expert e that behind e * K * N; group g = index / group.
// zeros is 1 for (code - z) * s, 0 for s * code + b. activations: 0 as they are, 1 rounded to f16,
// 2 to bf16, 3 to int8. bias is 1 where one is given; GPUs alone read it.
#pragma once
struct ProductParams {
  unsigned M, K, N, nk, group, zeros, activations, experts, bias;
};
static_assert(sizeof(ProductParams) == 36, "read by kernels of three compilers");
