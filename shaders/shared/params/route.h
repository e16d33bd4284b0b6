// Parameters of route and combine. route: ids [T, k], slots = T * k. combine: y [slots, N], weights
// [T, k], out [T, N].
#pragma once
struct RouteParams {
  unsigned slots, k, experts;
};
struct CombineParams {
  unsigned T, k, N;
};
static_assert(sizeof(RouteParams) == 12, "read by kernels of three compilers");
static_assert(sizeof(CombineParams) == 12, "read by kernels of three compilers");
