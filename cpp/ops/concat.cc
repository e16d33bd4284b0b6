// concat: tensors one after another along an axis, any number of them, any views.
#include <algorithm>

#include "ops/gpu.h"
#include "ops/rules.h"
#include "shared/params/concat.h"

namespace accel {

enum { axis };

static constexpr int kMaxRank = 8;

static int axis_of(const Call& c) {
  const int64_t rank = c.in[0].shape.rank(), a = c.attr(axis).i;
  if (a < -rank || a >= rank)
    refuse_attr(c, axis,
                "an axis of " + c.in[0].shape.to_string() + ", -" + std::to_string(rank) + " to " +
                    std::to_string(rank - 1));
  return int(a < 0 ? a + rank : a);
}

static std::string with_axis_free(const Shape& s, int a) {
  std::string text = "[";
  for (int i = 0; i < s.rank(); ++i)
    text += (i ? " " : "") + (i == a ? std::string("any") : std::to_string(s[i]));
  return text + "]";
}

static std::vector<Type> infer(const Call& c) {
  if (c.in.size() < 2) refuse(ErrorKind::attr, "xs", "is one tensor and must be two or more");
  const In& first = c.in[0];
  for (int i = 1; i < int(c.in.size()); ++i)
    if (c.in[size_t(i)].dtype != first.dtype)
      refuse_dtype(
          c, i, std::string(name_of(first.dtype)) + ", as xs[0] is" + cast_hint(c, i, first.dtype));
  if (first.shape.rank() > kMaxRank) refuse_shape(c, 0, "of rank 8 or less");
  const int a = axis_of(c);
  std::vector<int64_t> shape = first.shape.dims();
  for (int i = 1; i < int(c.in.size()); ++i) {
    const Shape& s = c.in[size_t(i)].shape;
    bool fits = s.rank() == first.shape.rank();
    for (int d = 0; fits && d < s.rank(); ++d) fits = d == a || s[d] == first.shape[d];
    if (!fits) refuse_shape(c, i, with_axis_free(first.shape, a) + ", as xs[0] is");
    if (__builtin_add_overflow(shape[size_t(a)], s[a], &shape[size_t(a)]))
      refuse(ErrorKind::shape, "result", "is too long and must have at most 2^63-1 elements");
  }
  return {Type{first.dtype, Shape(std::move(shape))}};
}

// The operand's axes, innermost last, where neighbours that run on in both places are one.
static ConcatPart part_of(const In& in, const Strides& to, int64_t first) {
  ConcatPart part = {};
  part.n = uint32_t(in.shape.elements());
  part.first = uint32_t(first);
  int at = kMaxRank;
  for (int i = in.shape.rank() - 1; i >= 0; --i) {
    const uint32_t extent = uint32_t(in.shape[i]), from = uint32_t(in.strides[size_t(i)]),
                   into = uint32_t(to[size_t(i)]);
    if (extent == 1) continue;
    const bool runs_on = at < kMaxRank && from == uint64_t(part.from[at]) * part.extent[at] &&
                         into == uint64_t(part.to[at]) * part.extent[at];
    if (runs_on) {
      part.extent[at] *= extent;
      continue;
    }
    --at;
    part.extent[at] = extent;
    part.from[at] = from;
    part.to[at] = into;
  }
  for (int i = 0; i < at; ++i) part.extent[i] = 1;
  return part;
}

static void params(const Call& c, Params& p) {
  const Shape& result = c.results[0].shape;
  const Strides to = contiguous_strides(result);
  const int a = axis_of(c);
  p.put(ConcatParams{uint32_t(result.elements()), uint32_t(c.in.size())});
  int64_t first = 0;
  for (const In& in : c.in) {
    p.append(part_of(in, to, first));
    first += in.shape[a] * to[size_t(a)];
  }
}

// Strides are parameters of 32 bits, as counts are.
template <int bytes>
static const char* not_bytes(const Call& c, const Limits&) {
  static const char* const moves[] = {"", "moves 1-byte elements", "moves 2-byte elements", "",
                                      "moves 4-byte elements"};
  if (size_of(c.in[0].dtype) != bytes) return moves[bytes];
  for (const In& in : c.in)
    for (int64_t stride : in.strides)
      if (stride > 0xffffffff) return "indexes in 32 bits";
  return nullptr;
}

// A launch an operand; none waits for another.
static void launch_parts(const Call& c, const KernelRow& row, Launches& out) {
  const int parts = int(c.in.size());
  for (int i = 0; i < parts; ++i) {
    Launch& launch = launch_own(
        row, out, groups_of(c.in[size_t(i)].shape.elements(), kGroupThreads * kThreadElements));
    launch.operands = {i, parts};
    launch.first_param = uint32_t((sizeof(ConcatParams) + size_t(i) * sizeof(ConcatPart)) / 4);
    launch.waits = false;
  }
}

extern const OpDef def_concat = {
    .op = Op::concat,
    .name = "concat",
    .doc =
        "Return the operands one after another along an axis.\n\n"
        "Two or more of one dtype, any; all other extents are equal. Views of rank 1 to 8 are read "
        "as they are.",
    .operands = {{"xs", "two or more tensors of one dtype, any views of rank 1 to 8",
                  SlotKind::tensors}},
    .attrs = {{"axis", AttrType::integer, "the axis that grows; negative ones count from the end"}},
    .infer = infer,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "concat_4", not_bytes<4>, "exact", "moves 4-byte elements"},
                        {Backend::cpu, "concat_2", not_bytes<2>, "exact", "moves 2-byte elements"},
                        {Backend::cpu, "concat_1", not_bytes<1>, "exact", "moves 1-byte elements"}},
                       launch_parts),
    .views = true,
    .exact = true,
};

}  // namespace accel
