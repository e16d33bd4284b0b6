// Parameters of scatter_rows: state [capacity, width], n rows.
#pragma once
struct ScatterRowsParams {
  unsigned capacity, width, n, pad;
};
static_assert(sizeof(ScatterRowsParams) == 16, "read by kernels of three compilers");
