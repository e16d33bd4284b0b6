// Products on matrix instructions of CUDA (shaders/cuda/matrix.h), order matrix16 with a weight
// [N, K] (specs/011 section 1): the tiles that there are, by the kernels and by who launches them.
// Every tile gives a row the same bits, so M, N and K choose freely.
//
// TILE(suffix, rows of x, columns of a group, warps, values of k in a stage, stages where x is f16,
// stages where it is f32)
//
// Those of few rows cut K: chunk i is of warp i % warps, each with stages of its own, and a group
// takes any number of tiles of columns (columns blockIdx.y, + gridDim.y and so on). Those of many
// rows share their stages, and a group has one tile. In both groups[0] are the parts of rows,
// groups[1] the tiles of columns. Functions: matmul_matrix16_nk_<x>_<w>_<suffix> with x of f32 and
// f16, w of f16 and bf16. No product by a float weight rounds its activations.
#pragma once
#include "shared/dialect.h"

#define MATRIX_FEW_TILES(TILE)      \
  TILE(rows1, 1, 16, 8, 64, 5, 5)   \
  TILE(rows8, 8, 16, 8, 64, 4, 3)   \
  TILE(rows16, 16, 32, 4, 64, 5, 4) \
  TILE(rows32, 32, 32, 4, 32, 6, 4)
#define MATRIX_MANY_TILES(TILE)     \
  TILE(rows64, 64, 64, 4, 64, 4, 3) \
  TILE(rows128, 128, 128, 8, 64, 4, 3)
#define MATRIX_TILES(TILE) \
  MATRIX_FEW_TILES(TILE)   \
  MATRIX_MANY_TILES(TILE)

#define MATRIX_CHUNK 128  // values of k in a chunk, whose sum begins at +0
#define MATRIX_STEP 16    // values of k in a step, the last of a chunk padded with zeros

// Apart, in bytes: rows of a stage, so that what is read together lies in other banks.
DEV constexpr u32 matrix_w_pitch(u32 depth) {
  return 2 * depth + 16;
}
DEV constexpr u32 matrix_x_pitch(u32 depth, u32 x_bytes) {
  return x_bytes == 2 ? 2 * depth + 16 : 4 * depth + 32;
}
DEV constexpr u32 matrix_stage_bytes(u32 rows, u32 columns, u32 depth, u32 x_bytes) {
  return columns * matrix_w_pitch(depth) + rows * matrix_x_pitch(depth, x_bytes);
}
// Shared memory of a group; x_bytes: of an element of x, 2 or 4. K decides nothing.
DEV constexpr u32 matrix_few_bytes(u32 rows, u32 columns, u32 warps, u32 depth, u32 stages_f16,
                                   u32 stages_f32, u32 x_bytes) {
  const u32 stages = x_bytes == 2 ? stages_f16 : stages_f32;
  return warps * (stages * matrix_stage_bytes(rows, columns, depth, x_bytes) + rows * columns * 4);
}
DEV constexpr u32 matrix_many_bytes(u32 rows, u32 columns, u32, u32 depth, u32 stages_f16,
                                    u32 stages_f32, u32 x_bytes) {
  const u32 stages = x_bytes == 2 ? stages_f16 : stages_f32;
  return stages * matrix_stage_bytes(rows, columns, depth, x_bytes);
}
