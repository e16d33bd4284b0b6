// Parameters of the three penalty nodes.
#pragma once
struct PenaltyParams {
  unsigned vocab, history;
};
static_assert(sizeof(PenaltyParams) == 8, "read by kernels of three compilers");
