// The fused kernels of shaders/cuda/rings_float.cu.
#include "cuda/ring_fused.h"

#define RING(suffix, ...) FUSED_ENTRY(matmul_nk_f32_f16_ring, suffix, WeightF16, __VA_ARGS__)
RINGS_NARROW_ONE(RING)
#undef RING
#define RING(suffix, ...) FUSED_ENTRY(matmul_nk_f32_bf16_ring, suffix, WeightBf16, __VA_ARGS__)
RINGS_NARROW_ONE(RING)
#undef RING
#define RING(suffix, ...) FUSED_ENTRY(matmul_nk_f32_f32_ring, suffix, WeightF32, __VA_ARGS__)
RINGS_F32_ONE(RING)
