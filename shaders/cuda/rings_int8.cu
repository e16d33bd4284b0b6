// quant_matmul of few rows.
#include "cuda/ring.h"

#define RING(suffix, ...) \
  RING_ENTRY(quant_matmul_nk_f32_ring_##suffix, WeightInt8, float, __VA_ARGS__)
RINGS_INT8(RING)
#undef RING
#define RING(suffix, ...) \
  RING_ENTRY(quant_matmul_nk_f16_ring_##suffix, WeightInt8, u16, __VA_ARGS__)
RINGS_INT8(RING)
