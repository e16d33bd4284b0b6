// Parameters of causal_conv1d: x [T, C], w [C, W], state [B, W - 1, C], out [T, C].
#pragma once
struct CausalConv1dParams {
  unsigned T, C, W, B, has_bias;
};
static_assert(sizeof(CausalConv1dParams) == 20, "read by kernels of three compilers");
