// Operators element by element, and the functions of shared/math.
#include "shared/params/elementwise.h"
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/clamp.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/elementwise.inl"
// clang-format on

KERNELS_BEGIN(elementwise)
// clang-format off
KERNEL_SPAN(add_f32, elementwise_chunks, (map_two<f_add, float, float>))
KERNEL_SPAN(add_f16, elementwise_chunks, (map_two<f_add, f16, f16>))
KERNEL_SPAN(mul_f32, elementwise_chunks, (map_two<f_mul, float, float>))
KERNEL_SPAN(mul_f16, elementwise_chunks, (map_two<f_mul, f16, f16>))
KERNEL_SPAN(scale_f32, elementwise_chunks, scale_run<float>)
KERNEL_SPAN(scale_f16, elementwise_chunks, scale_run<f16>)
KERNEL_SPAN(silu_f32, elementwise_chunks, (map_one<f_silu, float, float>))
KERNEL_SPAN(silu_f16, elementwise_chunks, (map_one<f_silu, f16, f16>))
KERNEL_SPAN(swiglu_f32, elementwise_chunks, (map_two<f_swiglu, float, float>))
KERNEL_SPAN(swiglu_f16, elementwise_chunks, (map_two<f_swiglu, f16, f16>))
KERNEL_SPAN(cast_f32_f16, elementwise_chunks, (map_one<f_same, float, f16>))
KERNEL_SPAN(cast_f16_f32, elementwise_chunks, (map_one<f_same, f16, float>))
KERNEL_SPAN(cast_bf16_f32, elementwise_chunks, (map_one<f_same, bf16, float>))
KERNEL_SPAN(sub_f32, elementwise_chunks, (map_two<f_sub, float, float>))
KERNEL_SPAN(sub_f16, elementwise_chunks, (map_two<f_sub, f16, f16>))
KERNEL_SPAN(exp_f16, elementwise_chunks, (map_one<f_exp, f16, f16>))
KERNEL_SPAN(tanh_f16, elementwise_chunks, (map_one<f_tanh, f16, f16>))
KERNEL_SPAN(sigmoid_f32, elementwise_chunks, (map_one<f_sigmoid, float, float>))
KERNEL_SPAN(sigmoid_f16, elementwise_chunks, (map_one<f_sigmoid, f16, f16>))
KERNEL_SPAN(softplus_f32, elementwise_chunks, (map_one<f_softplus, float, float>))
KERNEL_SPAN(softplus_f16, elementwise_chunks, (map_one<f_softplus, f16, f16>))
KERNEL_SPAN(gelu_erf_f32, elementwise_chunks, (map_one<f_gelu_erf, float, float>))
KERNEL_SPAN(gelu_erf_f16, elementwise_chunks, (map_one<f_gelu_erf, f16, f16>))
KERNEL_SPAN(gelu_tanh_f32, elementwise_chunks, (map_one<f_gelu_tanh, float, float>))
KERNEL_SPAN(gelu_tanh_f16, elementwise_chunks, (map_one<f_gelu_tanh, f16, f16>))
KERNEL_SPAN(clamp_f32, clamp_chunks, clamp_run<float>)
KERNEL_SPAN(clamp_f16, clamp_chunks, clamp_run<f16>)
// The functions of shared/math, measured against their ceilings through these lines.
KERNEL_SPAN(exp_f32, elementwise_chunks, (map_one<f_exp, float, float>))
KERNEL_SPAN(log_f32, elementwise_chunks, (map_one<f_log, float, float>))
KERNEL_SPAN(log1p_f32, elementwise_chunks, (map_one<f_log1p, float, float>))
KERNEL_SPAN(tanh_f32, elementwise_chunks, (map_one<f_tanh, float, float>))
KERNEL_SPAN(erf_f32, elementwise_chunks, (map_one<f_erf, float, float>))
KERNEL_SPAN(sin_f32, elementwise_chunks, (map_one<f_sin, float, float>))
KERNEL_SPAN(cos_f32, elementwise_chunks, (map_one<f_cos, float, float>))
// clang-format on
KERNELS_END
}  // namespace ISA
