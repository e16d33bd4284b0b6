// Parameters of rope: x [rows, width]; position r / rows_per_position; frequencies [rotary_dim /
// 2].
#pragma once
struct RopeParams {
  unsigned rows, width, rotary_dim, rows_per_position, halves, pad;
};
static_assert(sizeof(RopeParams) == 24, "read by kernels of three compilers");
