// matmul and linear of few rows of f16: float weights.
#include "cuda/ring.h"

#define RING(suffix, ...) RING_ENTRY(matmul_nk_f16_f16_ring_##suffix, WeightF16, u16, __VA_ARGS__)
RINGS_NARROW(RING)
#undef RING
#define RING(suffix, ...) RING_ENTRY(matmul_nk_f16_bf16_ring_##suffix, WeightBf16, u16, __VA_ARGS__)
RINGS_NARROW(RING)
