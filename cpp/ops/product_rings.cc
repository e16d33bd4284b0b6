// CUDA's rows of few rows by weights [N, K] in rings of shared memory: when they run, and which of
// the rings (shaders/shared/ring_tiles.h) a shape gets. specs/017-cuda.md has the figures.
#include "ops/product_rings.h"

#include <deque>

#include "ops/gpu.h"

namespace accel {

namespace {

#define RING(suffix, ...) ProductRing{#suffix, __VA_ARGS__},
const std::vector<ProductRing> kNarrow = {RINGS_NARROW(RING)}, kF32 = {RINGS_F32(RING)},
                               kInt8 = {RINGS_INT8(RING)}, kInt4 = {RINGS_INT4(RING)};
#undef RING
constexpr int64_t kMostRows = 8;

bool is_float(const Call& c) {
  return c.def->op == Op::matmul || c.def->op == Op::linear;
}
const std::vector<ProductRing>& rings_of(const Call& c) {
  const uint32_t bits = ring_format(c).bits;
  return bits == 32 ? kF32 : bits == 16 ? kNarrow : bits == 8 ? kInt8 : kInt4;
}

// Few columns: narrow groups, so that all multiprocessors have one. Long rows: more stages, or more
// threads a column, because a column is one chain after another. Many columns: few threads each.
// Between one large tile a multiprocessor (of 132) and two, half tiles are spread more evenly.
std::string_view suffix_for(uint32_t bits, int64_t m, int64_t k, int64_t n) {
  if (m > 1) return m == 2 && bits == 16 ? "two" : m <= 4 ? "four" : "eight";
  const bool small = k < 2048 && n < 8192;
  switch (bits) {
    case 32:
      return small ? "one_small" : "one_large";
    case 16:
      if (n >= 8192) return "one_wide";
      if (small) return k <= 576 ? "one_short" : "one_small";
      return n < 2048 || (n > 132 * 32 && k <= 8192) ? "one_deep" : "one_large";
    case 8:
      if (n >= 8192) return "one_wide";
      if (small || n < 2048) return "one_small";
      return k >= 8192 ? "one_deep" : "one_large";
    default:
      if (n >= 16384) return "one_wide";
      return small || n < 2048 ? "one_small" : "one_large";
  }
}

}  // namespace

RingFormat ring_format(const Call& c) {
  if (is_float(c)) return {c.in[1].dtype == DType::F32 ? 32u : 16u, 0, 0};
  if (c.def->op == Op::quant_matmul) return {8, 1, 2};
  return {4, 2, c.in[2].dtype == DType::F32 ? 4u : 2u};
}

// M decides nothing here, so the memory is what the largest of the rings takes.
const char* needs_ring(const Call& c, const Limits& limits) {
  if (!weight_is_nk(c)) return "reads a weight in nk";
  const RingFormat format = ring_format(c);
  const int64_t k = c.in[0].shape.back();
  if (k < 64 || k > 0xffffffff) return "needs K from 64 on";
  if (format.planes) {
    if (c.def->op != Op::quant_matmul && c.group != 32) return "needs groups of 32";
    if (k % 64) return "needs K to be a multiple of 64";
  } else if (k * format.bits % 128) {
    return "needs rows of the weight in whole 16 bytes";
  }
  uint32_t most = 0;
  for (const ProductRing& ring : rings_of(c))
    most = std::max(most, ring.bytes(uint32_t(k), format));
  return most > limits.group_bytes ? "needs more memory of a group than the device has" : nullptr;
}

const ProductRing& ring_for(const Call& c, int64_t m, int64_t k, int64_t n) {
  const std::string_view suffix = suffix_for(ring_format(c).bits, m, k, n);
  const auto& rings = rings_of(c);
  return *std::find_if(rings.begin(), rings.end(),
                       [&](const ProductRing& r) { return r.suffix == suffix; });
}
// Groups of a multiprocessor. Of short rows, and where no group gets a second tile of its columns
// before others have their first, all there are.
uint32_t ring_per_unit(const ProductRing& ring, RingFormat format, int64_t n) {
  const std::string_view suffix = ring.suffix;
  if (suffix == "one_short" || suffix == "one_small") return 0;
  if (suffix == "one_wide") return format.bits == 16 ? (n >= 65536 ? 0 : 3) : 2;
  if (suffix == "one_large" && format.bits == 4) return 0;
  return 2;
}

static void launch_ring(const Call& c, const KernelRow& row, Launches& out) {
  const int64_t m = c.in[0].shape.rank() == 2 ? c.in[0].shape[0] : 1;
  const KernelRow plain = plain_of(row);
  if (m < 1 || m > kMostRows) return launch_product(c, plain, out);
  const RingFormat format = ring_format(c);
  const int64_t k = c.in[0].shape.back(), n = c.results[0].shape.back();
  const ProductRing& ring = ring_for(c, m, k, n);
  Launch launch;
  launch.function = product_function(c, plain) + "_ring_" + std::string(ring.suffix);
  launch.groups[0] = groups_of(n, ring.tile());
  launch.threads = 32 * ring.warps;
  launch.operands = product_places(c);
  launch.group_bytes = ring.bytes(uint32_t(k), format);
  launch.per_unit = ring_per_unit(ring, format, n);
  out.list.push_back(launch);
}

bool is_ring(const KernelRow& row) {
  return row.launches == launch_ring;
}
KernelRow plain_of(const KernelRow& row) {
  KernelRow plain = row;
  plain.kernel = row.batch_group;
  return plain;
}

std::vector<KernelRow> with_rings(std::vector<KernelRow> rows) {
  static auto& names = *new std::deque<std::string>;  // for as long as the definitions live
  const auto first = std::find_if(rows.begin(), rows.end(),
                                  [](const KernelRow& r) { return r.backend == Backend::cuda; });
  std::vector<KernelRow> made;
  for (auto of = first; of != rows.end(); ++of) {
    const std::string_view name = of->kernel;
    if (of->backend != Backend::cuda || std::string_view(of->order) != "lane16") continue;
    if (name.find("_any_") != std::string_view::npos) continue;
    names.push_back(shared_name(of->kernel) + "_ring");
    KernelRow row = *of;
    row.kernel = names.back().c_str();
    row.reason =
        "order lane16; up to eight rows read the weight through rings of shared memory, more share "
        "tiles of it widened to f32";
    row.needs = needs_ring;
    row.launches = launch_ring;
    made.push_back(row);
  }
  rows.insert(first, made.begin(), made.end());
  return rows;
}

}  // namespace accel
