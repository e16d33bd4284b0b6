// Parameters of clamp: x[i mod x_block] between low and high.
#pragma once
struct ClampParams {
  unsigned n, x_block;
  float low, high;
};
static_assert(sizeof(ClampParams) == 16, "read by kernels of three compilers");
