// causal_conv1d: a short convolution along each sequence, channel by channel, over its last rows
// kept in a state.
#include "shared/params/causal_conv1d.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

enum { x, w, state, query_extents, bias };

static std::vector<Type> infer(const Call& c) {
  for (const int slot : {x, w, state}) require_dtype(c, slot, DType::F32);
  require_dtype(c, query_extents, DType::U32);
  if (c.in[bias].present) require_dtype(c, bias, DType::F32);
  require_rank(c, x, 2);
  require_rank(c, w, 2);
  const Shape &rows = c.in[x].shape, &taps = c.in[w].shape;
  if (taps[0] != rows[1])
    refuse_shape(c, w, "[" + std::to_string(rows[1]) + " W], because x is " + rows.to_string());
  if (taps[1] < 2) refuse_shape(c, w, "[" + std::to_string(rows[1]) + " W] with W of 2 or more");
  require_rank(c, query_extents, 1);
  const int64_t sequences = c.in[query_extents].shape[0];
  require_shape(c, state, {sequences, taps[1] - 1, rows[1]});
  if (c.in[bias].present) require_shape(c, bias, {rows[1]});
  return {Type{DType::F32, rows}};
}

static void params(const Call& c, Params& p) {
  const Shape &rows = c.in[x].shape, &taps = c.in[w].shape;
  p.put(CausalConv1dParams{uint32_t(rows[0]), uint32_t(rows[1]), uint32_t(taps[1]),
                           uint32_t(c.in[query_extents].shape[0]), c.in[bias].present});
}

// The results read the state, then it is shifted.
static void launch(const Call& c, const KernelRow& row, Launches& out) {
  launch_elements(c, row, out);
  const int64_t columns = c.in[state].shape[0] * c.in[x].shape[1];
  launch_own(row, out, groups_of(columns, kGroupThreads)).function = "causal_conv1d_state";
}

extern const OpDef def_causal_conv1d = {
    .op = Op::causal_conv1d,
    .name = "causal_conv1d",
    .doc =
        "Convolve the tokens of each sequence with W taps a channel; return the result and the "
        "state's next version.\n\n"
        "query_extents says how many rows of x belong to each sequence, in order. z is the "
        "sequence's W - 1 rows of\n"
        "state followed by its tokens; token t gives out[t, c] = sum over j of w[c, j] * z[t + j, "
        "c], starting from\n"
        "the product for j = 0, in order, then bias[c], each operation rounded. The state keeps "
        "the last W - 1 rows\n"
        "of z. Rows from the sum of the extents on are zero; an extent of 0 leaves its rows of "
        "state as they are.",
    .operands = {{"x", "f32 [T, C]"},
                 {"w", "f32 [C, W], W of 2 or more"},
                 {"state", "f32 [B, W - 1, C]", SlotKind::state},
                 {"query_extents", "u32 [B]: tokens of each sequence", SlotKind::tensor, false,
                  "query_extents"},
                 {"bias", "f32 [C], or None", SlotKind::tensor, true}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels = on_gpus(
        {{Backend::cpu, "causal_conv1d", always, "exact", "products and sums in order"}}, launch),
    .writes = state,
    .segments = query_extents,
    .exact = true,
    .returns = "tuple[Tensor, State]",
    .checks = {sum_within_rows(query_extents)},
};

}  // namespace accel
