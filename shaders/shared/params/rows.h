// Parameters of kernels over the rows of the last axis. eps is read by rms_norm, k by top_k_mask, p
// by top_p_mask, exact (0 or 1) by both masks.
#pragma once
struct RowsParams {
  unsigned rows, width;
  float eps, p;
  unsigned k, exact;
};
static_assert(sizeof(RowsParams) == 24, "read by kernels of three compilers");
