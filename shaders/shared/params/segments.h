// Parameters of segment_offsets.
#pragma once
struct SegmentsParams {
  unsigned segments, total;
};
static_assert(sizeof(SegmentsParams) == 8, "read by kernels of three compilers");
