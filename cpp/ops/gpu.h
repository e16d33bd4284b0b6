// The rows of the GPUs: one shader text serves Metal and CUDA (shaders/README.md), under the names
// and mostly in the orders of the CPU's kernels.
#pragma once
#include <algorithm>

#include "ops/opdef.h"

namespace accel {

using LaunchRule = void (*)(const Call&, const KernelRow&, Launches&);

// The rows given, then each of them for Metal and for CUDA. A row over packed planes stays the
// CPU's. `exchanges`: its SIMD groups exchange values, so devices without that get the row
// "<kernel>_plain", of the same bits.
std::vector<KernelRow> on_gpus(std::vector<KernelRow> rows, LaunchRule rule,
                               bool exchanges = false);

// The rows given, and before them one of the GPUs alone.
std::vector<KernelRow> with_gpu_row(std::vector<KernelRow> rows, KernelRow first, LaunchRule rule);

// A call's parameters as their struct.
template <class T>
T params_of(const Call& call) {
  Params params;
  call.def->params(call, params);
  T p = {};
  std::memcpy(&p, params.words.data(), sizeof p);
  return p;
}

inline uint32_t groups_of(int64_t n, int64_t each) {
  return uint32_t((n + each - 1) / each);
}

// ---------------------------------------------------------------- rules

inline constexpr uint32_t kGroupThreads = 256;
inline constexpr int64_t kThreadElements = 4;  // of an elementwise kernel
// Of scatter_rows: each of so few rows looks for its id among those behind it.
inline constexpr int64_t kScatterRowsAtOnce = 64;

// One launch of the row's own function.
inline Launch& launch_own(const KernelRow& row, Launches& out, uint32_t groups_x,
                          uint32_t threads = kGroupThreads) {
  out.list.push_back({row.kernel, {groups_x, 1, 1}, threads});
  return out.list.back();
}
// A thread for every few elements of the first result.
void launch_elements(const Call& call, const KernelRow& row, Launches& out);
// A group a row, and for each block of 256 entries its total and the carry before it.
void launch_draws(const Call& call, const KernelRow& row, Launches& out);
// A group a row.
void launch_rows(const Call& call, const KernelRow& row, Launches& out);
// Sixteen threads a row, sixteen rows a group.
void launch_rows16(const Call& call, const KernelRow& row, Launches& out);
// The same, but a group a long row, of the same bits: the function "<kernel>_row", or
// "<kernel>_long" where the group does not hold the row whole.
void launch_norms(const Call& call, const KernelRow& row, Launches& out);
// A group a row. Many share one of kSplitRow elements or more, with the same bits: "<kernel>_part",
// in front of them or behind them other launches (shaders/argmax.metal, softmax.metal).
void launch_argmax(const Call& call, const KernelRow& row, Launches& out);
void launch_softmax(const Call& call, const KernelRow& row, Launches& out);

}  // namespace accel
