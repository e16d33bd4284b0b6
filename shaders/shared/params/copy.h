// Parameters of a byte copy; bytes = hi * 2^32 + lo.
#pragma once
struct CopyParams {
  unsigned lo, hi;
};
static_assert(sizeof(CopyParams) == 8, "read by kernels of three compilers");
