// matmul and linear on matrix instructions: x of f16, weights of bf16.
#include "cuda/matrix.h"

#define TILE(...) MATRIX_FEW(matmul_matrix16_nk_f16_bf16, WeightBf16, u16, __VA_ARGS__)
MATRIX_FEW_TILES(TILE)
#undef TILE
#define TILE(...) MATRIX_MANY(matmul_matrix16_nk_f16_bf16, WeightBf16, u16, __VA_ARGS__)
MATRIX_MANY_TILES(TILE)
