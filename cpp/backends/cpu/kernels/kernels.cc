// The table of one instruction set: its files of kernels.
#include "backends/cpu/kernel_api.h"

#define ACCEL_TEXT(x) #x
#define ACCEL_NAME_OF(x) ACCEL_TEXT(x)
#define ACCEL_JOIN2(a, b) a##b
#define ACCEL_TABLE(isa) ACCEL_JOIN2(accel_kernels_, isa)
#define ACCEL_JOIN3(a, b, c) a##b##_##c
#define ACCEL_SYMBOL(group, isa) ACCEL_JOIN3(accel_kernels_, group, isa)
#if ACCEL_ISA_base
#define ACCEL_LEVEL "base"
#else
#define ACCEL_LEVEL "fma"
#endif

extern "C" {
#define GROUP(name) extern const accel_cpu::Kernel ACCEL_SYMBOL(name, ISA)[];
#include "backends/cpu/kernels/groups.inc"
#undef GROUP
extern const accel_cpu::KernelTable ACCEL_TABLE(ISA);
}

static const accel_cpu::Kernel* const groups[] = {
#define GROUP(name) ACCEL_SYMBOL(name, ISA),
#include "backends/cpu/kernels/groups.inc"
#undef GROUP
    nullptr};
const accel_cpu::KernelTable ACCEL_TABLE(ISA) = {ACCEL_NAME_OF(ISA), ACCEL_LEVEL, groups};
