// Products of few rows on CUDA by rings of shared memory (shaders/cuda/ring.h): what there is, by
// the kernels and by who launches them. Figures that chose them: specs/017-cuda.md.
//
// RING(suffix, rows of x, threads a column, columns a thread, warps, values of k in a stage,
// stages)
//
// Those of one row have a second kernel of f32 activations (shaders/cuda/ring_fused.h).
#pragma once
#include "shared/dialect.h"

#define RINGS_NARROW_ONE(RING)        \
  RING(one_short, 1, 8, 1, 1, 576, 2) \
  RING(one_small, 1, 8, 1, 1, 512, 4) \
  RING(one_deep, 1, 8, 1, 4, 512, 4)  \
  RING(one_large, 1, 8, 1, 8, 256, 5) \
  RING(one_wide, 1, 4, 1, 4, 256, 3)
#define RINGS_NARROW(RING)        \
  RINGS_NARROW_ONE(RING)          \
  RING(two, 2, 8, 1, 8, 256, 5)   \
  RING(four, 4, 16, 2, 8, 256, 5) \
  RING(eight, 8, 8, 2, 4, 256, 5)
#define RINGS_F32_ONE(RING)           \
  RING(one_small, 1, 8, 1, 1, 256, 4) \
  RING(one_large, 1, 8, 1, 8, 256, 3)
#define RINGS_F32(RING)           \
  RINGS_F32_ONE(RING)             \
  RING(four, 4, 16, 2, 8, 128, 4) \
  RING(eight, 8, 8, 2, 4, 128, 4)
#define RINGS_INT8_ONE(RING)          \
  RING(one_small, 1, 8, 1, 1, 256, 7) \
  RING(one_large, 1, 4, 1, 4, 512, 4) \
  RING(one_deep, 1, 8, 1, 8, 512, 5)  \
  RING(one_wide, 1, 2, 1, 4, 256, 4)
#define RINGS_INT8(RING)          \
  RINGS_INT8_ONE(RING)            \
  RING(four, 4, 8, 2, 4, 256, 6)  \
  RING(eight, 8, 8, 2, 4, 256, 6)
#define RINGS_INT4_ONE(RING)           \
  RING(one_small, 1, 8, 1, 1, 256, 7)  \
  RING(one_large, 1, 8, 1, 8, 1024, 3) \
  RING(one_wide, 1, 4, 1, 8, 512, 4)
#define RINGS_INT4(RING)          \
  RINGS_INT4_ONE(RING)            \
  RING(four, 4, 8, 2, 4, 512, 5)  \
  RING(eight, 8, 8, 2, 4, 512, 5)

// Bits of a weight, planes and bytes of an entry of one.
struct RingFormat {
  u32 bits, planes, plane_bytes;
};

#define RING_X_FLOATS 16384  // of x in shared memory at a time, or what is one stage of it
// Of each row of x.
DEV constexpr u32 ring_segment(u32 K, u32 rows, u32 depth) {
  const u32 whole = (K + 15) / 16 * 16;
  return whole <= RING_X_FLOATS / rows ? whole : RING_X_FLOATS / rows / depth * depth;
}
DEV constexpr u32 ring_x_bytes(u32 K, u32 rows, u32 depth) {
  return (ring_segment(K, rows, depth) * rows * 4 + 127) / 128 * 128;
}
// Apart, in bytes: rows of a column in a stage, so that columns read together lie in other banks.
DEV constexpr u32 ring_pitch(RingFormat f, u32 depth) {
  return depth * f.bits / 8 + (f.bits == 4 ? 16 : 2 * f.bits);
}
// Entries of a column's planes in a stage.
DEV constexpr u32 ring_groups(RingFormat f, u32 depth) {
  return f.planes ? depth / 32 : 0;
}
DEV constexpr u32 ring_planes_bytes(RingFormat f, u32 own, u32 depth) {
  return f.planes * own * ring_groups(f, depth) * f.plane_bytes;
}
// Of a warp with `own` columns: its stages and a pair of floats for each entry of one.
DEV constexpr u32 ring_warp_bytes(RingFormat f, u32 own, u32 depth, u32 stages) {
  return (stages * (own * ring_pitch(f, depth) + ring_planes_bytes(f, own, depth)) +
          ring_groups(f, depth) * own * 8 + 127) /
         128 * 128;
}

// Of a fused kernel, between x and the rings: the scale of the norm.
#define RING_NORM_BYTES 128
