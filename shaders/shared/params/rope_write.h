// Parameters of rope_write: rope of q and of k as by its own launches, and n rows of k and of v for
// their states. The first groups turn q, the next k, the others move v.
#pragma once
#include "shared/params/rope.h"
struct RopeWriteParams {
  RopeParams q, k;
  unsigned q_groups, k_groups;
  unsigned n, k_heads;  // rows of k's state, each of so many rows of k
  unsigned k_capacity, v_capacity, v_width, pad;
};
static_assert(sizeof(RopeWriteParams) == 80, "read by kernels of three compilers");
