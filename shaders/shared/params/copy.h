// Parameters of a byte copy; bytes = hi * 2^32 + lo.
#pragma once
struct CopyParams {
  unsigned lo, hi;
};
