// Segments of rows: where each begins.
#include "shared/params/segments.h"
#include "backends/cpu/kernels/prelude.h"

namespace ISA {

static void segment_offsets_run(const KernelArgs* a, u32, u32, void*) {
  const SegmentsParams& p = *(const SegmentsParams*)a->params;
  const u32* counts = (const u32*)a->buf[0];  // [segments]
  u32* offsets = (u32*)a->buf[1];             // [segments + 1]
  u64 at = 0;
  offsets[0] = 0;
  for (u32 e = 0; e < p.segments; ++e) {
    at = at_most(at + counts[e], p.total);
    offsets[e + 1] = (u32)at;
  }
}

KERNELS_BEGIN(segments)
KERNEL(segment_offsets, one_chunk, segment_offsets_run)
KERNELS_END
}  // namespace ISA
