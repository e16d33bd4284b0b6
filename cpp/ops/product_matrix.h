// Matrix instructions of CUDA (shaders/shared/matrix_tiles.h) as the host sees them: which tile a
// shape gets, its memory and its groups.
#pragma once
#include "ops/products.h"

namespace accel {

struct MatrixTile {
  std::string_view suffix;
  uint32_t rows, columns, warps;
  uint32_t bytes_f16, bytes_f32;  // of a group, where x is f16, f32
  bool few;                       // a group takes any number of tiles of columns, else one

  uint32_t bytes(DType x) const { return x == DType::F16 ? bytes_f16 : bytes_f32; }
};
const std::vector<MatrixTile>& matrix_tiles();

// For m rows by weights of n columns. Every tile gives a row the same bits.
const MatrixTile& matrix_tile_for(int64_t m, int64_t n);
// Memory of a group that products on matrix units need: that of the largest tile, so that M decides
// nothing.
int64_t matrix_group_bytes();

bool is_matrix16(const KernelRow& row);

}  // namespace accel
