// rope: rotary position embedding over the last axis, both pairings, by base or by explicit
// frequencies.
#include "shared/params/rope.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

enum { rotary_dim, base_name, pairing };
enum { x, positions, frequencies };

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, x, DType::F32);
  const int64_t dim = c.attr(rotary_dim).i, width = width_of(c.in[x]);
  if (dim <= 0 || dim % 2 || dim > width)
    refuse_attr(c, rotary_dim, "positive, even and at most " + std::to_string(width));
  const std::string& pairs = c.attr(pairing).s;
  if (pairs != "adjacent" && pairs != "halves") refuse_attr(c, pairing, "'adjacent' or 'halves'");
  const bool base = c.attr(base_name).set, table = c.in[frequencies].present;
  if (base == table)
    refuse(ErrorKind::attr, "base_name",
           base ? "is given together with frequencies and must be given alone"
                : "is None and must be a declared f32 scalar, unless frequencies is given");
  if (table) require_type(c, frequencies, DType::F32, {dim / 2});
  return {Type{DType::F32, c.in[x].shape}};
}

static void rest(const Call& c) {
  require_dtype(c, positions, DType::U32);
  const int64_t n = c.in[positions].shape.elements(), rows = rows_of(c.in[x]);
  if (n > rows || rows % n)
    refuse(ErrorKind::shape, "positions",
           "is " + c.in[positions].shape.to_string() + " with " + std::to_string(n) +
               " entries and must have a count that divides the " + std::to_string(rows) +
               " rows of x " + c.in[x].shape.to_string());
}

static void params(const Call& c, Params& p) {
  const int64_t rows = rows_of(c.in[x]);
  RopeParams out = {};
  out.rows = uint32_t(rows);
  out.width = uint32_t(width_of(c.in[x]));
  out.rotary_dim = uint32_t(c.attr(rotary_dim).i);
  out.rows_per_position = uint32_t(rows / c.in[positions].shape.elements());
  out.halves = c.attr(pairing).s == "halves";
  p.put(out);
}

static void launch_pairs(const Call& c, const KernelRow& row, Launches& out) {
  const int64_t width = c.in[0].shape.back();
  const int64_t items = c.in[0].shape.elements() / width * (width - c.attr(rotary_dim).i / 2);
  launch_own(row, out, groups_of(items, kGroupThreads * kThreadElements));
}

extern const OpDef def_rope = {
    .op = Op::rope,
    .name = "rope",
    .doc =
        "Rotate pairs of the first rotary_dim elements of each row by position * frequency.\n\n"
        "Pairs are (2k, 2k + 1) for pairing='adjacent' and (k, k + rotary_dim / 2) for 'halves'. "
        "The angle is\n"
        "f32(position) * f_k with f_k = f32(exp(-2k / rotary_dim * ln(base))), or frequencies[k] "
        "where given.\n"
        "positions may have any count that divides the rows: entry i serves that many consecutive "
        "rows.",
    .operands = {{"x", "f32 [..., W]"},
                 {"positions", "u32; one a row, or one a run of rows"},
                 {"frequencies", "f32 [rotary_dim / 2], in place of base_name", SlotKind::tensor,
                  true}},
    .attrs = {{"rotary_dim", AttrType::integer, "how many leading elements rotate; even"},
              {"base_name", AttrType::scalar_f32, "name of a declared f32 scalar", false, false,
               "None"},
              {"pairing", AttrType::text, "'adjacent' or 'halves'", false, false, "'adjacent'"}},
    .infer = infer,
    .rest = rest,
    .params = params,
    .kernels = on_gpus(
        {{Backend::cpu, "rope_f32", always, "exact", "writes its result beside x, no copy"}},
        launch_pairs),
    .source = "Su et al., RoFormer, 2021",
};

}  // namespace accel
