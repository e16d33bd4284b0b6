// grouped_matvec and grouped_matmul over Int4 and Quantized weights.
#include "products.h"

NK_PRODUCT("grouped_matmul_nk_int4_f16", float, true, Int4Weights<half, true>)
NK_PRODUCT("grouped_matmul_nk_int4_bf16", float, true, Int4Weights<ushort, true>)
NK_PRODUCT("grouped_matmul_nk_int4_f32", float, true, Int4Weights<float, true>)
NK_PRODUCT("grouped_matmul_nk_any_int4_f16", float, true, Int4Weights<half, false>)
NK_PRODUCT("grouped_matmul_nk_any_int4_bf16", float, true, Int4Weights<ushort, false>)
NK_PRODUCT("grouped_matmul_nk_any_int4_f32", float, true, Int4Weights<float, false>)
NK_PRODUCT("grouped_matmul_nk_int8", float, true, Int8Weights<true>)
NK_PRODUCT("grouped_matmul_nk_any_int8", float, true, Int8Weights<false>)
KN_PRODUCT("grouped_matmul_kn_int4_f16", float, true, Int4Weights<half, false>)
KN_PRODUCT("grouped_matmul_kn_int4_bf16", float, true, Int4Weights<ushort, false>)
KN_PRODUCT("grouped_matmul_kn_int4_f32", float, true, Int4Weights<float, false>)
KN_PRODUCT("grouped_matmul_kn_int8", float, true, Int8Weights<false>)
