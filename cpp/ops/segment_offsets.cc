// segment_offsets: where each segment of rows begins, from their counts. Recorded by the library,
// one node for all operators that share the counts.
#include "ops/gpu.h"
#include "ops/rules.h"
#include "shared/params/segments.h"

namespace accel {

enum { total };

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::U32);
  return {Type{DType::U32, {c.in[0].shape.elements() + 1}}};
}

static void params(const Call& c, Params& p) {
  p.put(SegmentsParams{uint32_t(c.in[0].shape.elements()), uint32_t(c.attr(total).i)});
}

static void launch(const Call&, const KernelRow& row, Launches& out) {
  launch_own(row, out, 1);
}

extern const OpDef def_segment_offsets = {
    .op = Op::segment_offsets,
    .name = "segment_offsets",
    .doc =
        "Exclusive running sums of counts, each clamped to total: segment e is rows "
        "[offsets[e], offsets[e + 1]).",
    .operands = {{"counts", "u32 [segments]"}},
    .attrs = {{"total", AttrType::integer, "rows there are"}},
    .infer = infer,
    .params = params,
    .kernels = on_gpus(
        {{Backend::cpu, "segment_offsets", always, "exact", "integer sums, clamped"}}, launch),
    .internal = true,
    .exact = true,
};

}  // namespace accel
