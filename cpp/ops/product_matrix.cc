// CUDA's rows on matrix instructions by weights [N, K]: when they run, and which of the tiles
// (shaders/shared/matrix_tiles.h) a shape gets. Specs 011 and 017.
#include "ops/product_matrix.h"

#include "ops/gpu.h"
#include "shared/matrix_tiles.h"

namespace accel {

namespace {

constexpr const char* kMatrix16 = "matrix16";
constexpr int64_t kUnits = 132;  // multiprocessors that are to have work, those of an H200

const MatrixTile& tile_of(std::string_view suffix) {
  const auto& tiles = matrix_tiles();
  return *std::find_if(tiles.begin(), tiles.end(),
                       [&](const MatrixTile& t) { return t.suffix == suffix; });
}

// Results that the busiest multiprocessor computes, those of padding too.
int64_t longest_share(const MatrixTile& t, int64_t m, int64_t n) {
  const int64_t tiles = int64_t(groups_of(m, t.rows)) * groups_of(n, t.columns);
  return (tiles + kUnits - 1) / kUnits * t.rows * t.columns;
}

const char* needs_matrix_units(const Call& c, const Limits& limits) {
  const int64_t k = c.in[0].shape[1];
  if (k < 64 || k > 0xffffffff) return "needs K from 64 on";
  if (k % 8) return "needs rows of the weight in whole 16 bytes";
  if (!limits.matrix) return "is not asked for: open_cuda(matrix=True) asks for matrix units";
  return matrix_group_bytes() > limits.group_bytes
             ? "needs more memory of a group than the device has"
             : nullptr;
}
template <DType X, DType W>
const char* matrix_pair(const Call& c, const Limits& limits) {
  const char* why = float_pair<true, X, W>(c, limits);
  return why ? why : needs_matrix_units(c, limits);
}

void launch_matrix(const Call& c, const KernelRow& row, Launches& out) {
  const int64_t m = c.in[0].shape[0], n = c.results[0].shape[1];
  const MatrixTile& tile = matrix_tile_for(m, n);
  Launch launch;
  launch.function = std::string(row.kernel) + "_" + std::string(tile.suffix);
  launch.groups[0] = groups_of(m, tile.rows);
  launch.groups[1] = groups_of(n, tile.columns);
  launch.threads = 32 * tile.warps;
  launch.operands = product_places(c);
  launch.group_bytes = tile.bytes(c.in[0].dtype);
  launch.per_unit = tile.few ? tile.warps / 4 : 0;  // the kernels' bound of a multiprocessor
  out.list.push_back(launch);
}

KernelRow matrix_row(const char* kernel, Reject reject) {
  KernelRow row = {Backend::cuda,
                   kernel,
                   reject,
                   kMatrix16,
                   "order matrix16, chunks of 128 k on matrix instructions, rows padded to eight; "
                   "inside an instruction the hardware adds",
                   kernel};
  row.launches = launch_matrix;
  return row;
}

}  // namespace

const std::vector<MatrixTile>& matrix_tiles() {
#define FEW(suffix, rows, columns, warps, ...)             \
  {#suffix,                                                \
   rows,                                                   \
   columns,                                                \
   warps,                                                  \
   matrix_few_bytes(rows, columns, warps, __VA_ARGS__, 2), \
   matrix_few_bytes(rows, columns, warps, __VA_ARGS__, 4), \
   true},
#define MANY(suffix, rows, columns, warps, ...)             \
  {#suffix,                                                 \
   rows,                                                    \
   columns,                                                 \
   warps,                                                   \
   matrix_many_bytes(rows, columns, warps, __VA_ARGS__, 2), \
   matrix_many_bytes(rows, columns, warps, __VA_ARGS__, 4), \
   false},
  static const std::vector<MatrixTile> tiles = {MATRIX_FEW_TILES(FEW) MATRIX_MANY_TILES(MANY)};
#undef FEW
#undef MANY
  return tiles;
}

// Of many rows a large tile reads each operand half as often, which is taken for a fifth of the
// time; small ones spread more evenly.
const MatrixTile& matrix_tile_for(int64_t m, int64_t n) {
  for (const MatrixTile& tile : matrix_tiles())
    if (tile.few && m <= tile.rows) return tile;
  const MatrixTile &small = tile_of("rows64"), &large = tile_of("rows128");
  return 4 * longest_share(large, m, n) <= 5 * longest_share(small, m, n) ? large : small;
}

int64_t matrix_group_bytes() {
  int64_t most = 0;
  for (const MatrixTile& tile : matrix_tiles())
    most = std::max({most, int64_t(tile.bytes_f16), int64_t(tile.bytes_f32)});
  return most;
}

bool is_matrix16(const KernelRow& row) {
  return row.launches == launch_matrix;
}

std::vector<KernelRow> with_matrix16(std::vector<KernelRow> rows) {
  constexpr DType F32 = DType::F32, F16 = DType::F16, BF16 = DType::BF16;
  const std::vector<KernelRow> made = {
      matrix_row("matmul_matrix16_nk_f32_f16", matrix_pair<F32, F16>),
      matrix_row("matmul_matrix16_nk_f32_bf16", matrix_pair<F32, BF16>),
      matrix_row("matmul_matrix16_nk_f16_f16", matrix_pair<F16, F16>),
      matrix_row("matmul_matrix16_nk_f16_bf16", matrix_pair<F16, BF16>)};
  const auto first = std::find_if(rows.begin(), rows.end(),
                                  [](const KernelRow& r) { return r.backend == Backend::cuda; });
  rows.insert(first, made.begin(), made.end());
  return rows;
}

}  // namespace accel
