// Parameters of scatter_rows: state [capacity, width], n rows.
#pragma once
struct ScatterRowsParams {
  unsigned capacity, width, n, pad;
};
