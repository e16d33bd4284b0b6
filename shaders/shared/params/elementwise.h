// Parameters of elementwise kernels: out[i] = f(x[i mod x_block], y[i mod y_block]); a block of n
// is the whole run.
#pragma once
struct ElementwiseParams {
  unsigned n, x_block, y_block, pad;
};
static_assert(sizeof(ElementwiseParams) == 16, "read by kernels of three compilers");
