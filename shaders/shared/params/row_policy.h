// Parameters of the nodes of sample_rows. slots is read by row_bias, history (entries a row) by
// row_penalty_count.
#pragma once
struct RowPolicyParams {
  unsigned rows, vocab, slots, history;
};
static_assert(sizeof(RowPolicyParams) == 16, "read by kernels of three compilers");
