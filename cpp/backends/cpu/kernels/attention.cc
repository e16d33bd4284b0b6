// Attention over a contiguous cache.
#include "backends/cpu/kernels/prelude.h"
#include "shared/params/attention.h"

namespace ISA {
// clang-format off
#include "backends/cpu/kernels/attention.inl"
// clang-format on

KERNELS_BEGIN(attention)
// clang-format off
KERNEL_LOCAL(attention_f32, attention_chunks, attention_run<float>, attention_local)
KERNEL_LOCAL(attention_f16, attention_chunks, attention_run<f16>, attention_local)
// clang-format on
KERNELS_END
}  // namespace ISA
