#include "ops/gpu.h"

#include <deque>

#include "ops/row_rules.h"
#include "shared/row_parts.h"

namespace accel {

namespace {

// Names and predicates of rows that are made here. Static for as long as the definitions are.
std::deque<std::string>& names() {
  static auto* kept = new std::deque<std::string>;
  return *kept;
}

const char* needs_simd_groups(const Call&, const Limits& limits) {
  return limits.simd_groups ? nullptr : "needs SIMD groups that exchange values";
}

}  // namespace

std::vector<KernelRow> on_gpus(std::vector<KernelRow> rows, LaunchRule rule, bool exchanges) {
  const size_t cpu_rows = rows.size();
  for (const Backend backend : {Backend::metal, Backend::cuda})
    for (size_t i = 0; i < cpu_rows; ++i) {
      if (rows[i].packing) continue;
      KernelRow row = rows[i];
      row.backend = backend;
      row.launches = rule;
      row.needs = exchanges ? needs_simd_groups : nullptr;
      rows.push_back(row);
      if (!exchanges || backend == Backend::cuda) continue;
      names().push_back(std::string(row.kernel) + "_plain");
      row.kernel = names().back().c_str();
      row.needs = nullptr;
      rows.push_back(row);
    }
  return rows;
}

std::vector<KernelRow> with_gpu_row(std::vector<KernelRow> rows, KernelRow first, LaunchRule rule) {
  first.launches = rule;
  for (const Backend backend : {Backend::cuda, Backend::metal}) {
    first.backend = backend;
    rows.insert(rows.begin(), first);
  }
  return rows;
}

void launch_elements(const Call& call, const KernelRow& row, Launches& out) {
  launch_own(row, out,
             groups_of(call.results[0].shape.elements(), kGroupThreads * kThreadElements));
}

void launch_rows(const Call& call, const KernelRow& row, Launches& out) {
  launch_own(row, out, uint32_t(rows_of(call.in[0])));
}

void launch_draws(const Call& call, const KernelRow& row, Launches& out) {
  launch_rows(call, row, out);
  out.scratch = rows_of(call.in[0]) * groups_of(width_of(call.in[0]), 256) * 8;
}

void launch_rows16(const Call& call, const KernelRow& row, Launches& out) {
  launch_own(row, out, groups_of(rows_of(call.in[0]), 16));
}

void launch_norms(const Call& call, const KernelRow& row, Launches& out) {
  const int64_t width = width_of(call.in[0]);
  if (width < kShortRow) return launch_rows16(call, row, out);
  launch_rows(call, row, out);
  out.list[0].function = std::string(row.kernel) + (width > kHeldRow ? "_long" : "_row");
}

void launch_argmax(const Call& call, const KernelRow& row, Launches& out) {
  if (width_of(call.in[0]) < kSplitRow) return launch_rows(call, row, out);
  const int64_t rows = rows_of(call.in[0]), parts = groups_of(width_of(call.in[0]), kRowPart);
  out.scratch = rows * parts * 8;  // a key and a place each
  launch_own(row, out, uint32_t(rows * parts)).function = std::string(row.kernel) + "_part";
  launch_own(row, out, uint32_t(rows)).function = std::string(row.kernel) + "_last";
}

void launch_softmax(const Call& call, const KernelRow& row, Launches& out) {
  constexpr int64_t kLanes = 256;  // of the order
  if (width_of(call.in[0]) < kSplitRow) return launch_rows(call, row, out);
  const int64_t rows = rows_of(call.in[0]), parts = groups_of(width_of(call.in[0]), kRowPart);
  out.scratch = rows * (parts + kLanes + 1) * 4;  // maxima, sums and the greatest of a row
  launch_own(row, out, uint32_t(rows * parts)).function = "row_maxima";
  launch_own(row, out, uint32_t(rows * (kLanes / kSumShare))).function = "row_sums";
  launch_own(row, out, uint32_t(rows * parts)).function = std::string(row.kernel) + "_part";
}

}  // namespace accel
