// int4_matvec, and int4_matmul of few rows.
#include "cuda/ring.h"

#define RING(suffix, ...) \
  RING_ENTRY(int4_matmul_nk_f16_ring_##suffix, WeightInt4<AsF16>, float, __VA_ARGS__)
RINGS_INT4(RING)
#undef RING
#define RING(suffix, ...) \
  RING_ENTRY(int4_matmul_nk_bf16_ring_##suffix, WeightInt4<AsBf16>, float, __VA_ARGS__)
RINGS_INT4(RING)
#undef RING
#define RING(suffix, ...) \
  RING_ENTRY(int4_matmul_nk_f32_ring_##suffix, WeightInt4<AsF32>, float, __VA_ARGS__)
RINGS_INT4(RING)
