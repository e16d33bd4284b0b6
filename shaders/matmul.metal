// matmul and linear: float weights.
#include "products.h"

NK_PRODUCT("matmul_nk_f32_f32", float, false, FloatWeights<float>)
NK_PRODUCT("matmul_nk_f32_f16", float, false, FloatWeights<half>)
NK_PRODUCT("matmul_nk_f32_bf16", float, false, FloatWeights<ushort>)
NK_PRODUCT("matmul_nk_f16_f16", half, false, FloatWeights<half>)
NK_PRODUCT("matmul_nk_f16_bf16", half, false, FloatWeights<ushort>)
KN_PRODUCT("matmul_kn_f32_f32", float, false, FloatWeights<float>)
KN_PRODUCT("matmul_kn_f32_f16", float, false, FloatWeights<half>)
KN_PRODUCT("matmul_kn_f32_bf16", float, false, FloatWeights<ushort>)
KN_PRODUCT("matmul_kn_f16_f16", half, false, FloatWeights<half>)
KN_PRODUCT("matmul_kn_f16_bf16", half, false, FloatWeights<ushort>)
