// Parameters of linear_attention: q, k [T, H, Dk], v [T, H, Dv], state [B, H, Dv, Dk], out [T, H,
// Dv]. The gates of token t and head h begin at t * token_gates + h * head_gates of beta, and at
// key_gates times that of alpha: one value for all keys where key_gates is 1, otherwise Dk of them.
// decay_first and add are flags.
#pragma once
struct LinearAttentionParams {
  unsigned T, B, H, Dk, Dv, token_gates, head_gates, key_gates, decay_first, add;
};
static_assert(sizeof(LinearAttentionParams) == 40, "read by kernels of three compilers");
