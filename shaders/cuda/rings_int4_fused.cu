// The fused kernels of shaders/cuda/rings_int4.cu.
#include "cuda/ring_fused.h"

#define RING(suffix, ...) \
  FUSED_ENTRY(int4_matmul_nk_f16_ring, suffix, WeightInt4<AsF16>, __VA_ARGS__)
RINGS_INT4_ONE(RING)
#undef RING
#define RING(suffix, ...) \
  FUSED_ENTRY(int4_matmul_nk_bf16_ring, suffix, WeightInt4<AsBf16>, __VA_ARGS__)
RINGS_INT4_ONE(RING)
#undef RING
#define RING(suffix, ...) \
  FUSED_ENTRY(int4_matmul_nk_f32_ring, suffix, WeightInt4<AsF32>, __VA_ARGS__)
RINGS_INT4_ONE(RING)
