// scatter_rows: writes rows into a state by id; the last of duplicate ids wins, an id beyond the
// state writes nothing.
#include "shared/params/scatter_rows.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

// Whether some run of trailing axes multiplies to width.
static bool ends_in(const Shape& rows, int64_t width) {
  int64_t n = 1;
  for (int axis = rows.rank() - 1; axis >= 0 && n < width; --axis) n *= rows[axis];
  return n == width;
}

static std::vector<Type> infer(const Call& c) {
  const In &state = c.in[0], &rows = c.in[1], &ids = c.in[2];
  require_dtype_in(c, 0, {DType::F32, DType::F16, DType::BF16, DType::U32});
  require_dtype(c, 1, state.dtype);
  require_dtype(c, 2, DType::U32);
  const int64_t width = state.shape.elements() / state.shape[0];
  if (!ends_in(rows.shape, width))
    refuse_shape(c, 1,
                 "rows whose trailing axes multiply to " + std::to_string(width) +
                     ", the width of state " + state.shape.to_string());
  if (rows.shape.elements() / width != ids.shape.elements())
    refuse_shape(c, 1,
                 std::to_string(ids.shape.elements()) + " rows of " + std::to_string(width) +
                     " elements, one an id of ids " + ids.shape.to_string());
  return {};
}

static void params(const Call& c, Params& p) {
  const Shape& state = c.in[0].shape;
  p.put(ScatterRowsParams{uint32_t(state[0]), uint32_t(state.elements() / state[0]),
                          uint32_t(c.in[2].shape.elements()), 0});
}

static const char* not_4(const Call& c, const Limits&) {
  return size_of(c.in[0].dtype) == 4 ? nullptr : "moves 4-byte elements";
}
static const char* not_2(const Call& c, const Limits&) {
  return size_of(c.in[0].dtype) == 2 ? nullptr : "moves 2-byte elements";
}

// Many rows elect the last one of each place, in scratch of one word a place.
static void launch_scatter(const Call& c, const KernelRow& row, Launches& out) {
  const int64_t n = c.in[2].shape.elements();
  const uint32_t elements = groups_of(c.in[1].shape.elements(), kGroupThreads * kThreadElements);
  if (n <= kScatterRowsAtOnce) {
    launch_own(row, out, elements);
    return;
  }
  out.scratch = c.in[0].shape[0] * 4;
  launch_own(row, out, groups_of(n, kGroupThreads)).function = "scatter_clear";
  launch_own(row, out, groups_of(n, kGroupThreads)).function = "scatter_elect";
  launch_own(row, out, elements).function =
      size_of(c.in[0].dtype) == 4 ? "scatter_winners_4" : "scatter_winners_2";
}

extern const OpDef def_scatter_rows = {
    .op = Op::scatter_rows,
    .name = "scatter_rows",
    .doc =
        "Write rows into a state: state[ids[r]] = rows[r]. Return the state's next version.\n\n"
        "The width is elements(state) / state.shape[0]; rows may have any shape whose trailing "
        "axes multiply\n"
        "to it. With duplicate ids the last row wins. An id that is not a row of the state writes "
        "nothing.",
    .operands = {{"state", "f32, f16, bf16 or u32, leading axis capacity", SlotKind::state},
                 {"rows", "the dtype of state"},
                 {"ids", "u32, one a row"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "scatter_rows_4", not_4, "exact", "moves rows of 4-byte elements"},
                 {Backend::cpu, "scatter_rows_2", not_2, "exact", "moves rows of 2-byte elements"}},
                launch_scatter),
    .writes = 0,
    .exact = true,
    .checks = {{DataRule::below, 2, [](const Call& c) { return c.in[0].shape[0]; }}},
};

}  // namespace accel
