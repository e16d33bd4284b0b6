// Products over activations rounded to int8: int4_matvec, int4_matmul, quant_matmul, grouped_matvec
// and grouped_matmul.
#include "product_int8.h"

template [[host_name(
    "round_to_int8_f32")]] [[kernel]] decltype(round_to_int8<float>) round_to_int8<float>;
template
    [[host_name("round_to_int8_f16")]] [[kernel]] decltype(round_to_int8<half>) round_to_int8<half>;
INT8_PRODUCT("int4_matmul_int8_f16", false, Int4Weights<half, true>)
INT8_PRODUCT("int4_matmul_int8_bf16", false, Int4Weights<ushort, true>)
INT8_PRODUCT("int4_matmul_int8_f32", false, Int4Weights<float, true>)
INT8_PRODUCT("quant_matmul_int8", false, Int8Weights<true>)
INT8_PRODUCT("grouped_matmul_int4_f16_by_int8", true, Int4Weights<half, true>)
INT8_PRODUCT("grouped_matmul_int4_bf16_by_int8", true, Int4Weights<ushort, true>)
INT8_PRODUCT("grouped_matmul_int4_f32_by_int8", true, Int4Weights<float, true>)
INT8_PRODUCT("grouped_matmul_int8_by_int8", true, Int8Weights<true>)
