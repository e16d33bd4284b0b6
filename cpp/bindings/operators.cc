// The operators: one loop over the op table. Views and states stand behind it, since they record no
// node.
#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

Operand to_operand(const OpDef& def, const OperandSpec& spec, py::handle value) {
  const Arg a{def.name, spec.name};
  if (value.is_none()) return {};
  switch (spec.kind) {
    case SlotKind::tensor:
      return tensor_arg(a, value);
    case SlotKind::state:
      return state_arg(a, value);
    case SlotKind::int4:
      return object_arg<Int4>(a, value, "an Int4");
    case SlotKind::quantized:
      return object_arg<Quantized>(a, value, "a Quantized");
    case SlotKind::weight:
      if (py::isinstance<Int4>(value)) return value.cast<Int4>();
      if (py::isinstance<Quantized>(value)) return value.cast<Quantized>();
      return tensor_arg(a, value);
    case SlotKind::tensors: {
      std::vector<Tensor> all;
      for (const py::handle one : py::reinterpret_borrow<py::tuple>(value)) {
        const std::string name = std::string(spec.name) + "[" + std::to_string(all.size()) + "]";
        all.push_back(tensor_arg({def.name, name.c_str()}, one));
      }
      return all;
    }
  }
  return {};
}

const char* type_text(AttrType type) {
  static const char* const names[] = {
      "an int", "a float", "a str", "a bool", "a DType", "a sequence of ints", "a str", "a str"};
  return names[int(type)];
}

// None leaves a required attribute unset, which is a diagnostic, and one whose default is None.
Attr to_attr(const OpDef& def, const AttrSpec& spec, py::handle value) {
  const Arg a{def.name, spec.name};
  Attr attr;
  if (value.is_none()) {
    const bool default_is_none = !spec.fallback || std::string(spec.fallback) == "None";
    if (spec.required || default_is_none) return attr;
    wrong_type(a, value, type_text(spec.type));
  }
  attr.set = true;
  switch (spec.type) {
    case AttrType::integer:
      attr.i = int_arg(a, value);
      break;
    case AttrType::real:
      attr.f = f32_arg(a, value);
      break;
    case AttrType::flag:
      attr.b = bool_arg(a, value);
      break;
    case AttrType::dtype:
      attr.dtype = dtype_arg(a, value);
      break;
    case AttrType::ints:
      attr.v = ints_arg(a, value);
      break;
    case AttrType::text:
    case AttrType::scalar_f32:
    case AttrType::scalar_u32:
      attr.s = text_arg(a, value);
      break;
  }
  return attr;
}

py::object to_python(const OpDef& def, const Recorded& r) {
  if (r.values.empty()) return py::cast(r.state);
  if (r.values.size() == 1 && def.writes < 0) return py::cast(r.values[0]);
  py::list all;
  for (const Tensor& t : r.values) all.append(t);
  if (def.writes >= 0) all.append(r.state);
  return py::tuple(all);
}

// Operands, then attributes, all by position: the generated functions pass them so.
py::object call(const OpDef& def, const py::args& args) {
  const size_t n_operands = def.operands.size(), n_attrs = def.attrs.size();
  if (args.size() != n_operands + n_attrs)
    throw py::type_error(std::string(def.name) + ": takes " + std::to_string(n_operands + n_attrs) +
                         " values by position, of which " + std::to_string(args.size()) +
                         " are given");
  std::vector<Operand> operands;
  for (size_t i = 0; i < n_operands; ++i)
    operands.push_back(to_operand(def, def.operands[i], args[i]));
  AttrArgs attrs;
  for (size_t i = 0; i < n_attrs; ++i)
    attrs[def.attrs[i].name] = to_attr(def, def.attrs[i], args[n_operands + i]);
  // These two return x itself where nothing is to be done.
  if (def.op == Op::contiguous && operands[0].kind == Operand::tensor)
    return py::cast(tensor::contiguous(operands[0].t, caller_site()));
  if (def.op == Op::cast && operands[0].kind == Operand::tensor && attrs["to"].set)
    return py::cast(tensor::cast(operands[0].t, attrs["to"].dtype, caller_site()));
  return to_python(def, Builder::record(def.op, operands, std::move(attrs), caller_site()));
}

void add_views(py::module_& m) {
  using namespace py::literals;
  m.def(
      "reshape",
      [](py::object x, py::object shape) {
        const Tensor t = tensor_arg({"reshape", "x"}, x);
        return tensor::reshape(t, Shape(ints_arg({"reshape", "shape"}, shape)), caller_site());
      },
      "x"_a, "shape"_a);
  m.def(
      "permute",
      [](py::object x, py::object axes) {
        const Tensor t = tensor_arg({"permute", "x"}, x);
        return tensor::permute(t, ints_arg({"permute", "axes"}, axes), caller_site());
      },
      "x"_a, "axes"_a);
  m.def(
      "transpose",
      [](py::object x, py::object axis_a, py::object axis_b) {
        const Tensor t = tensor_arg({"transpose", "x"}, x);
        const int64_t a = int_arg({"transpose", "axis_a"}, axis_a);
        return tensor::transpose(t, a, int_arg({"transpose", "axis_b"}, axis_b), caller_site());
      },
      "x"_a, "axis_a"_a, "axis_b"_a);
  m.def(
      "slice",
      [](py::object x, py::object axis, py::object start, py::object end) {
        const Tensor t = tensor_arg({"slice", "x"}, x);
        const int64_t a = int_arg({"slice", "axis"}, axis),
                      from = int_arg({"slice", "start"}, start);
        return tensor::slice(t, a, from, int_arg({"slice", "end"}, end), caller_site());
      },
      "x"_a, "axis"_a, "start"_a, "end"_a);
  m.def(
      "broadcast",
      [](py::object x, py::object shape) {
        const Tensor t = tensor_arg({"broadcast", "x"}, x);
        return tensor::broadcast(t, Shape(ints_arg({"broadcast", "shape"}, shape)), caller_site());
      },
      "x"_a, "shape"_a);
  m.def(
      "read_state",
      [](py::object state) {
        return tensor::read_state(state_arg({"read_state", "state"}, state), caller_site());
      },
      "state"_a);
  m.def(
      "layer_state",
      [](py::object state, py::object layer) {
        const State s = state_arg({"layer_state", "state"}, state);
        return tensor::layer_state(s, int_arg({"layer_state", "layer"}, layer), caller_site());
      },
      "state"_a, "layer"_a);
}

}  // namespace

void add_operators(py::module_& m) {
  for (const OpDef* def : op_defs()) {
    if (def->internal) continue;
    m.def(
        def->name, [def](const py::args& args) { return call(*def, args); }, def->doc);
  }
  add_views(m);
}

}  // namespace accel::bindings
