// Views share producer, port and range, and move nothing (CONTRACT 8); states' ranges and reads
// (7).
#include <numeric>

#include "graph/builder.h"
#include "graph/builder_state.h"

namespace accel::tensor {

namespace {

// Runs `rule` on a valid operand; a refusal is recorded under `op` and gives poison.
template <class Handle, class Rule>
auto viewed(const char* op, const char* operand, const Handle& x, const Site& site, Rule rule)
    -> decltype(rule(x.view())) {
  using Result = decltype(rule(x.view()));
  if (x.null())
    throw graph_error(
        {Diagnostic{ErrorKind::attr, op, operand,
                    std::string(op) + ": " + operand + " is None and must be given", site}});
  if (!x.valid()) return Result::poison(x.builder());
  try {
    return rule(x.view());
  } catch (const Refusal& r) {
    add_refusal(x.builder(), op, r, site);
    return Result::poison(x.builder());
  }
}

// "axis is 4 and must be in [-2, 1] for x [4 8]"; negative axes count from the end.
int resolve_axis(const char* name, int64_t axis, const Shape& shape) {
  const int64_t rank = shape.rank();
  if (axis < -rank || axis >= rank)
    throw Refusal{ErrorKind::attr, name,
                  std::string(name) + " is " + std::to_string(axis) + " and must be in [" +
                      std::to_string(-rank) + ", " + std::to_string(rank - 1) + "] for x " +
                      shape.to_string()};
  return int(axis < 0 ? axis + rank : axis);
}

void require_positive_extents(const Shape& shape) {
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] <= 0)
      throw Refusal{ErrorKind::shape, "shape",
                    "shape is " + shape.to_string() + ", axis " + std::to_string(i) + " is " +
                        std::to_string(shape[i]) + " and must be positive"};
  if (!shape.fits())
    throw Refusal{ErrorKind::shape, "shape",
                  "shape is " + shape.to_string() + " and must have at most 2^63-1 elements"};
}

std::string layout_text(const View& v) {
  return v.type().to_string() + " with strides " + text_of(v.strides) + " and offset " +
         std::to_string(v.offset);
}

}  // namespace

Tensor reshape(const Tensor& x, const Shape& shape, Site site) {
  return viewed("reshape", "x", x, site, [&](const View& v) {
    if (shape.rank() == 0)
      throw Refusal{ErrorKind::shape, "shape",
                    "shape is [] and must have an axis; a scalar is [1]"};
    require_positive_extents(shape);
    if (shape.elements() != v.shape.elements())
      throw Refusal{ErrorKind::shape, "shape",
                    "shape is " + shape.to_string() + " with " + std::to_string(shape.elements()) +
                        " elements and must have " + std::to_string(v.shape.elements()) +
                        ", as x " + v.shape.to_string() + " has"};
    if (!v.contiguous())
      throw Refusal{
          ErrorKind::shape, "x",
          "x is " + layout_text(v) + " and must be contiguous; contiguous(x) makes it so"};
    View out = v;
    out.shape = shape;
    out.strides = contiguous_strides(shape);
    return Tensor(x.builder(), std::move(out));
  });
}

Tensor permute(const Tensor& x, const std::vector<int64_t>& axes, Site site) {
  return viewed("permute", "x", x, site, [&](const View& v) {
    const int rank = v.shape.rank();
    if (int(axes.size()) != rank)
      throw Refusal{ErrorKind::attr, "axes",
                    "axes is " + text_of(axes) + " and must name the " + std::to_string(rank) +
                        " axes of x " + v.shape.to_string()};
    View out = v;
    std::vector<bool> seen(size_t(rank), false);
    for (int i = 0; i < rank; ++i) {
      const int from = resolve_axis("axes", axes[size_t(i)], v.shape);
      if (seen[size_t(from)])
        throw Refusal{ErrorKind::attr, "axes",
                      "axes is " + text_of(axes) + " and must name each axis once"};
      seen[size_t(from)] = true;
      out.shape[i] = v.shape[from];
      out.strides[size_t(i)] = v.strides[size_t(from)];
    }
    return Tensor(x.builder(), std::move(out));
  });
}

Tensor transpose(const Tensor& x, int64_t axis_a, int64_t axis_b, Site site) {
  return viewed("transpose", "x", x, site, [&](const View& v) {
    const int a = resolve_axis("axis_a", axis_a, v.shape),
              b = resolve_axis("axis_b", axis_b, v.shape);
    View out = v;
    std::swap(out.shape[a], out.shape[b]);
    std::swap(out.strides[size_t(a)], out.strides[size_t(b)]);
    return Tensor(x.builder(), std::move(out));
  });
}

Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t end, Site site) {
  return viewed("slice", "x", x, site, [&](const View& v) {
    const int a = resolve_axis("axis", axis, v.shape);
    const auto bad = [&](const char* name, int64_t is, const std::string& must) {
      return Refusal{ErrorKind::attr, name,
                     std::string(name) + " is " + std::to_string(is) + " and must be " + must +
                         " for axis " + std::to_string(a) + " of x " + v.shape.to_string()};
    };
    if (start < 0) throw bad("start", start, "0 or more");
    if (end <= start) throw bad("end", end, "above start " + std::to_string(start));
    if (end > v.shape[a]) throw bad("end", end, "at most " + std::to_string(v.shape[a]));
    View out = v;
    out.shape[a] = end - start;
    out.offset += start * v.strides[size_t(a)];
    return Tensor(x.builder(), std::move(out));
  });
}

Tensor broadcast(const Tensor& x, const Shape& shape, Site site) {
  return viewed("broadcast", "x", x, site, [&](const View& v) {
    const int extra = shape.rank() - v.shape.rank();
    if (extra < 0)
      throw Refusal{ErrorKind::shape, "shape",
                    "shape is " + shape.to_string() + " and must have the rank of x " +
                        v.shape.to_string() + " or more"};
    View out = v;
    out.shape = shape;
    out.strides.assign(size_t(shape.rank()), 0);
    for (int i = 0; i < v.shape.rank(); ++i) {
      if (v.shape[i] != shape[i + extra] && v.shape[i] != 1)
        throw Refusal{ErrorKind::shape, "shape",
                      "shape is " + shape.to_string() + " and must keep axis " + std::to_string(i) +
                          " of x " + v.shape.to_string() + ", whose extent is not 1"};
      out.strides[size_t(i + extra)] = v.shape[i] == shape[i + extra] ? v.strides[size_t(i)] : 0;
    }
    require_positive_extents(shape);
    return Tensor(x.builder(), std::move(out));
  });
}

Tensor contiguous(const Tensor& x, Site site) {
  if (x.valid() && x.view().contiguous()) return x;
  return Builder::record(Op::contiguous, {x}, {}, std::move(site)).value();
}

Tensor cast(const Tensor& x, DType to, Site site) {
  if (x.valid() && x.view().dtype == to) return x;
  Attr a;
  a.set = true;
  a.dtype = to;
  return Builder::record(Op::cast, {x}, {{"to", a}}, std::move(site)).value();
}

Tensor read_state(const State& s, Site site) {
  return viewed("read_state", "state", s, site, [&](const View& v) -> Tensor {
    const std::string why = stale_text(*s.builder(), v.source);
    if (!why.empty()) throw Refusal{ErrorKind::attr, "state", "state " + why};
    return Tensor(s.builder(), v);
  });
}

State layer_state(const State& s, int64_t layer, Site site) {
  return viewed("layer_state", "state", s, site, [&](const View& v) -> State {
    if (layer < 0 || layer >= v.shape[0])
      throw Refusal{ErrorKind::attr, "layer",
                    "layer is " + std::to_string(layer) + " and must be in [0, " +
                        std::to_string(v.shape[0] - 1) + "] for state " + v.shape.to_string()};
    if (v.shape.rank() < 2)
      throw Refusal{ErrorKind::shape, "state",
                    "state is " + v.shape.to_string() + " and must keep an axis behind the layers"};
    View out = v;
    out.shape = Shape(std::vector<int64_t>(v.shape.begin() + 1, v.shape.end()));
    out.strides = contiguous_strides(out.shape);
    out.source.count = out.shape.elements();
    out.source.begin = v.source.begin + layer * out.source.count;
    return State(s.builder(), std::move(out));
  });
}

}  // namespace accel::tensor
