// int4_matvec and int4_matmul.
#include "products.h"

NK_PRODUCT("int4_matmul_nk_f16", float, false, Int4Weights<half, true>)
NK_PRODUCT("int4_matmul_nk_bf16", float, false, Int4Weights<ushort, true>)
NK_PRODUCT("int4_matmul_nk_f32", float, false, Int4Weights<float, true>)
NK_PRODUCT("int4_matmul_nk_any_f16", float, false, Int4Weights<half, false>)
NK_PRODUCT("int4_matmul_nk_any_bf16", float, false, Int4Weights<ushort, false>)
NK_PRODUCT("int4_matmul_nk_any_f32", float, false, Int4Weights<float, false>)
KN_PRODUCT("int4_matmul_kn_f16", float, false, Int4Weights<half, false>)
KN_PRODUCT("int4_matmul_kn_bf16", float, false, Int4Weights<ushort, false>)
KN_PRODUCT("int4_matmul_kn_f32", float, false, Int4Weights<float, false>)
