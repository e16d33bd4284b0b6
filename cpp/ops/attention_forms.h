// The forms of attention and what follows from them, read off a call (CONTRACT 15).
#pragma once
#include <algorithm>

#include "ops/opdef.h"
#include "shared/params/attention.h"

namespace accel::attention {

enum { q, k, v, lengths, pages, query_extents, sinks };  // slots
enum { scale_name, block, base_name, window, soft_cap, operands };

inline AttentionForm form_of(const Call& c) {
  const int rank = c.in[q].shape.rank();
  if (rank == 2) return kAttentionDecode;
  if (rank == 4) return kAttentionBatched;
  return c.in[query_extents].present ? kAttentionRagged : kAttentionPrefill;
}
inline const char* name_of(AttentionForm form) {
  static const char* const names[] = {"decode", "prefill", "batched", "ragged"};
  return names[form];
}
// Page ids and lengths are u32, so a longer block holds every position in its first page, as this
// one does.
inline uint32_t block_of(const Call& c) {
  return uint32_t(std::min<int64_t>(c.attr(block).i, 0xffffffff));
}
// Positions that a sequence can have; 0xffffffff stands for more.
inline int64_t reach_of(const Call& c) {
  if (!c.in[pages].present) return c.in[k].shape[0];
  const uint64_t entries = std::min<uint64_t>(uint64_t(c.in[pages].shape.back()), 0xffffffff);
  return int64_t(std::min<uint64_t>(entries * block_of(c), 0xffffffff));
}

// Blocks of 128 positions that a row sees into at most.
inline uint32_t blocks_of(const Call& c) {
  const int64_t all = std::max<int64_t>((reach_of(c) + 127) / 128, 1);
  const int64_t seen = c.attr(window).set ? std::min<int64_t>(c.attr(window).i, 0xffffffff) : 0;
  return uint32_t(seen ? std::min(all, (seen + 254) / 128) : all);
}

}  // namespace accel::attention
