// Parameters of gather_rows and quant_gather_rows: table [table_rows, width], n ids.
#pragma once
struct GatherRowsParams {
  unsigned table_rows, width, n, pad;
};
static_assert(sizeof(GatherRowsParams) == 16, "read by kernels of three compilers");
