// Parameters of products of one row x [K] in one launch: parts (1 to 3) weights [N, K] with results
// of their own. norm is 1 where x is rms-normed with eps first. pair is 1 where parts 0 and 1 are
// gate and up of one swiglu, whose result stands in the place of part 0's; residual is 1 where one
// is added to part 0's result. activations and zeros as of ProductParams, equal in all parts.
#pragma once
struct FusedProductParams {
  unsigned K, parts, N[3], norm, pair, residual, activations, zeros;
  float eps;
};
static_assert(sizeof(FusedProductParams) == 44, "read by kernels of three compilers");
