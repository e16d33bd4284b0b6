// Which kernel table this machine runs: by its feature bits, never by its model name.
#pragma once
#include <string>
#include <vector>

#include "backends/cpu/kernel_api.h"

namespace accel {

// True when processor and operating system both support the instruction set ("base", "avx2",
// "avx512", "neon").
bool machine_has(const std::string& isa);
// Tables that this build holds, best last.
const std::vector<const accel_cpu::KernelTable*>& built_tables();
// The table `forced` names, else the one of ACCEL_CPU_ISA, else the best that the machine has.
// Throws unsupported_error for one that this machine or build lacks.
const accel_cpu::KernelTable& pick_table(const std::string& forced);
// The kernels of a table, groups in order.
std::vector<const accel_cpu::Kernel*> kernels_of(const accel_cpu::KernelTable& table);

// SHA-256, in hex, of what makes the kernels of an instruction set: sources, flags, compiler. Empty
// for one that is not built.
std::string kernel_digest(const std::string& isa);

// CPUs that this process may use, bounded by the control group's quota; at least 1.
int usable_cpus();
// Name and vendor for people to read.
std::string cpu_name();
std::string cpu_vendor();

}  // namespace accel
