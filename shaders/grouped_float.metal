// grouped_matvec and grouped_matmul over float weights.
#include "products.h"

NK_PRODUCT("grouped_matmul_nk_f32", float, true, FloatWeights<float>)
NK_PRODUCT("grouped_matmul_nk_f16", float, true, FloatWeights<half>)
NK_PRODUCT("grouped_matmul_nk_bf16", float, true, FloatWeights<ushort>)
KN_PRODUCT("grouped_matmul_kn_f32", float, true, FloatWeights<float>)
KN_PRODUCT("grouped_matmul_kn_f16", float, true, FloatWeights<half>)
KN_PRODUCT("grouped_matmul_kn_bf16", float, true, FloatWeights<ushort>)
