// Parameters of the gather pass behind contiguous: index -> coordinates -> strides, in elements.
// Unused axes have extent 1.
#pragma once
struct ContiguousParams {
  unsigned n, rank, shape[8], strides[8];
};
static_assert(sizeof(ContiguousParams) == 72, "read by kernels of three compilers");
