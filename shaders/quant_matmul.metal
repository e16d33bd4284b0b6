// quant_matmul: int8 weights in blocks of 32.
#include "products.h"

NK_PRODUCT("quant_matmul_nk_f32", float, false, Int8Weights<true>)
NK_PRODUCT("quant_matmul_nk_f16", half, false, Int8Weights<true>)
NK_PRODUCT("quant_matmul_nk_any_f32", float, false, Int8Weights<false>)
NK_PRODUCT("quant_matmul_nk_any_f16", half, false, Int8Weights<false>)
KN_PRODUCT("quant_matmul_kn_f32", float, false, Int8Weights<false>)
KN_PRODUCT("quant_matmul_kn_f16", half, false, Int8Weights<false>)
