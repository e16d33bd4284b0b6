// Parameters of attention over contiguous caches k, v [capacity, kv_heads, head_dim]; q [S, heads,
// head_dim]. prefill 0: one row at position len - 1; 1: row s at base + s.
#pragma once
struct AttentionParams {
  unsigned S, heads, kv_heads, head_dim, capacity, prefill;
};
static_assert(sizeof(AttentionParams) == 24, "read by kernels of three compilers");
