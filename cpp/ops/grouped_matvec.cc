// grouped_matvec: rows ordered by expert, each against its expert's weight; the weight is read
// once a row.
#include "ops/gpu.h"
#include "ops/grouped.h"

namespace accel {

extern const OpDef def_grouped_matvec = {
    .op = Op::grouped_matvec,
    .name = "grouped_matvec",
    .doc =
        "Multiply each row of x by its expert's weight, one row at a time: the form for few rows "
        "an "
        "expert.\n\n"
        "Rows arrive ordered by expert: expert e has counts[e] of them, in order of e, clamped to "
        "the rows there\n"
        "are. out[t] is x[t] times the weight of t's expert, plus bias[e] where one is given. Rows "
        "from the sum\n"
        "of counts on are padding: they come out as zero, and no weight is read for them. Equal to "
        "matmul over\n"
        "the rows of each expert, and to grouped_matmul, bit for bit. Blocks and groups of a "
        "quantized "
        "weight run over\n"
        "the flattened array of all experts; with activations, x is rounded first, as the products "
        "over\n"
        "such a weight do. The result is f32 [T, N].",
    .operands = grouped_operands(),
    .attrs = {w_order_spec(), activations_spec()},
    .infer = infer_grouped,
    .params = grouped_params,
    .kernels = on_gpus(ACCEL_GROUPED_ROWS("grouped_matvec"), launch_product),
    .segments = kGroupedCounts,
    .note = activations_note,
    .checks = {sum_within_rows(kGroupedCounts)},
};

}  // namespace accel
