// The fused kernels of shaders/cuda/rings_int8.cu.
#include "cuda/ring_fused.h"

#define RING(suffix, ...) FUSED_ENTRY(quant_matmul_nk_f32_ring, suffix, WeightInt8, __VA_ARGS__)
RINGS_INT8_ONE(RING)
