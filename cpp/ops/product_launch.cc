// How a product is launched on a GPU: a function for one row of activations, for few or for many,
// all of the same bits (specs/011 section 12).
#include <deque>

#include "ops/gpu.h"
#include "ops/grouped.h"
#include "shared/product_tiles.h"

namespace accel {

namespace {

enum class Rows : uint8_t { one, few, many };
const char* const kSuffix[] = {"_one", "_few", "_many"};

struct Tile {
  int64_t rows, columns;
  uint32_t threads;
};
const Tile kNk[] = {{1, kNkOneColumns, kNkThreads},
                    {kNkFewRows, kNkFewColumns, kNkThreads},
                    {kNkManyRows, kNkManyColumns, kNkManyThreads}};
const Tile kKn[] = {{1, kKnFewColumns, kKnThreads},
                    {kKnFewRows, kKnFewColumns, kKnThreads},
                    {kKnManyRows, kKnManyColumns, kKnThreads}};
const Tile kInt8[] = {{1, kInt8Columns, kInt8Threads}, {kInt8FewRows, kInt8Columns, kInt8Threads}};
const Tile kMatrix[] = {{},
                        {kMatrixFewRows, kMatrixColumns, kMatrixThreads},
                        {kMatrixManyRows, kMatrixColumns, kMatrixThreads}};

bool is_grouped(const Call& c) {
  return c.def->segments >= 0;
}
bool is_int8(const Call& c) {
  return c.attrs.size() > activations && activations_of(c) == Activations::int8;
}
int64_t rows_of_x(const Call& c) {
  return c.in[0].shape.rank() == 2 ? c.in[0].shape[0] : 1;
}

// Twice the rows of `few` still read the weight once from memory, and once more from a cache. Of
// grouped products the rows that an expert has on average decide.
Rows rows_for(const Call& c) {
  int64_t m = rows_of_x(c);
  if (is_grouped(c)) {
    if (c.def->op == Op::grouped_matvec) return Rows::one;
    const int64_t experts = c.in[kGroupedCounts].shape[0];
    m = (m + experts - 1) / experts;
  }
  if (m == 1) return Rows::one;
  return m <= 2 * kNkFewRows || is_int8(c) ? Rows::few : Rows::many;
}

constexpr const char* kMatrix8 = "matrix8";
bool is_matrix8(const KernelRow& row) {
  return std::string_view(row.order) == kMatrix8;
}
const char* needs_matrices(const Call& c, const Limits& limits) {
  if (!limits.simd_groups) return "needs SIMD groups that multiply matrices";
  const int64_t k = c.in[0].shape[1], n = c.in[1].shape[weight_is_nk(c) ? 0 : 1];
  return k % 8 || n % 8 || std::min(k, n) < 64 ? "needs K and N to be multiples of 8 from 64 on"
                                               : nullptr;
}

// Each expert's rows, and the padding behind them, are cut into parts of their own.
int64_t parts_of(const Call& c, int64_t each) {
  const int64_t m = rows_of_x(c);
  if (!is_grouped(c)) return (m + each - 1) / each;
  const int64_t runs = std::min(m, c.in[kGroupedCounts].shape[0] + 1);
  return (m + runs * (each - 1)) / each;
}

void launch_rounding(const Call& c, Launches& out) {
  const auto p = params_of<ProductParams>(c);
  const int64_t blocks = int64_t(p.M) * (p.K / p.group);
  out.scratch = int64_t(p.M) * p.K + 8 * blocks;
  out.list.push_back({c.in[0].dtype == DType::F16 ? "round_to_int8_f16" : "round_to_int8_f32",
                      {groups_of(blocks, kRoundThreads), 1, 1},
                      kRoundThreads,
                      {0}});
}

}  // namespace

std::string shared_name(std::string name) {
  const auto shares = [&](std::string_view from, std::string_view with) {
    if (name.rfind(from, 0) == 0) name.replace(0, from.size(), with);
  };
  shares("linear_", "matmul_");
  shares("int4_matvec_", "int4_matmul_");
  shares("grouped_matvec_", "grouped_matmul_");
  return name;
}

std::string product_function(const Call& c, const KernelRow& row) {
  // The rounded rows have no dtype.
  if (c.def->op == Op::quant_matmul && is_int8(c)) return "quant_matmul_int8";
  return shared_name(row.kernel);
}

// Places of PRODUCT_OPERANDS: x, w, scales, offsets, bias, out, segments. What a product lacks is
// out again, not read there: it begins at a multiple of four bytes, as whatever stands there must.
std::vector<int> product_places(const Call& c) {
  const int out = int(c.in.size());
  switch (c.def->op) {
    case Op::matmul:
      return {0, 1, out, out, out, out, out};
    case Op::linear:
      return {0, 1, out, out, c.in[2].present ? 2 : out, out, out};
    case Op::quant_matmul:
      return {0, 1, 2, out, out, out, out};
    case Op::int4_matvec:
    case Op::int4_matmul:
      return {0, 1, 2, c.in[3].present ? 3 : 4, out, out, out};
    default:
      break;
  }
  const int w = c.in[kGroupedW].present       ? kGroupedW
                : c.in[kGroupedCodes].present ? kGroupedCodes
                                              : kGroupedQuants;
  const int offsets = c.in[kGroupedZeros].present ? kGroupedZeros : kGroupedBiases;
  return {0, w, kGroupedScales, offsets, kGroupedBias, out, kGroupedBias + 1};
}

void launch_product(const Call& c, const KernelRow& row, Launches& out) {
  Rows rows = rows_for(c);
  if (is_matrix8(row) && rows == Rows::one) rows = Rows::few;
  if (is_int8(c)) launch_rounding(c, out);
  const Tile* tiles = is_int8(c) ? kInt8 : is_matrix8(row) ? kMatrix : weight_is_nk(c) ? kNk : kKn;
  const Tile& tile = tiles[size_t(rows)];
  std::vector<int> places = product_places(c);
  if (is_int8(c)) places[0] = int(c.in.size());  // rounded rows are read, x is not
  out.list.push_back(
      {product_function(c, row) + kSuffix[size_t(rows)],
       {uint32_t(parts_of(c, tile.rows)), groups_of(c.results[0].shape.back(), tile.columns), 1},
       tile.threads,
       std::move(places)});
}

std::vector<KernelRow> with_matrix8(std::vector<KernelRow> rows) {
  // Both operators name the function that they share. Names live as long as the definitions.
  static auto& names = *new std::deque<std::string>;
  const auto metal = std::find_if(rows.begin(), rows.end(),
                                  [](const KernelRow& r) { return r.backend == Backend::metal; });
  const std::vector<KernelRow> all(metal, rows.end());
  std::vector<KernelRow> made;
  for (const KernelRow& of : all) {
    if (of.backend != Backend::metal) continue;
    std::string name = of.kernel;
    names.push_back(name.replace(0, name.find('_'), "matmul_matrix8"));
    KernelRow row = of;
    row.kernel = row.batch_group = names.back().c_str();
    row.order = kMatrix8;
    row.reason =
        "order matrix8, 8x8 matrices of a SIMD group, rows padded to eight; inside a step of eight "
        "the hardware adds";
    row.needs = needs_matrices;
    made.push_back(row);
  }
  rows.insert(metal, made.begin(), made.end());
  return rows;
}

}  // namespace accel
