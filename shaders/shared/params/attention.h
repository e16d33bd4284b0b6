// Parameters of attention over caches k, v [capacity, kv_heads, head_dim]. rows: 1 of decode, S of
// prefill, B of batched, T of ragged, each [heads, head_dim].
#pragma once
enum AttentionForm { kAttentionDecode, kAttentionPrefill, kAttentionBatched, kAttentionRagged };
struct AttentionParams {
  unsigned form;  // an AttentionForm
  unsigned rows, heads, kv_heads, head_dim, capacity;
  unsigned sequences;         // entries of lengths
  unsigned block, max_pages;  // pages are [sequences, max_pages]; 0: contiguous
  unsigned window[2];         // low word, high word; 0: every earlier position
  float soft_cap;             // 0: none
  unsigned has_sinks;
  unsigned blocks;  // of 128 positions: how many a row sees into at most
};
static_assert(sizeof(AttentionParams) == 56, "read by kernels of three compilers");
