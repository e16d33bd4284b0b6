// matmul and linear of few rows: float weights.
#include "cuda/ring.h"

#define RING(suffix, ...) RING_ENTRY(matmul_nk_f32_f16_ring_##suffix, WeightF16, float, __VA_ARGS__)
RINGS_NARROW(RING)
#undef RING
#define RING(suffix, ...) \
  RING_ENTRY(matmul_nk_f32_bf16_ring_##suffix, WeightBf16, float, __VA_ARGS__)
RINGS_NARROW(RING)
#undef RING
#define RING(suffix, ...) RING_ENTRY(matmul_nk_f32_f32_ring_##suffix, WeightF32, float, __VA_ARGS__)
RINGS_F32(RING)
