// Parameters of the float products: x [M, K], w [K, N] (kn) or [N, K] (nk), out [M, N].
#pragma once
struct MatMulParams {
  unsigned M, K, N, nk;
};
static_assert(sizeof(MatMulParams) == 16, "read by kernels of three compilers");
