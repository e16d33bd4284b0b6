// Attention over cached keys and values.
#include "shared/params/attention.h"
#include "backends/cpu/kernels/prelude.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/attention.inl"
// clang-format on

KERNELS_BEGIN(attention)
// clang-format off
KERNEL_TWO(attention_f32, attention_chunks, (attention_run<float, false>), attention_chunks2,
           (attention_run2<float, false>), attention_shared, attention_local)
KERNEL_TWO(attention_f16, attention_chunks, (attention_run<f16, false>), attention_chunks2,
           (attention_run2<f16, false>), attention_shared, attention_local)
KERNEL_TWO(attention_f16_narrow, attention_chunks, (attention_run<f16, true>), attention_chunks2,
           (attention_run2<f16, true>), attention_shared, attention_local)
// clang-format on
KERNELS_END
}  // namespace ISA
