// Tensor, State and the bundles: immutable values of one builder.
#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

// `x + y` and the like: a number is no tensor, and None is a diagnostic of the operator.
Tensor binary(Op op, const Tensor& x, py::handle y, const char* sign) {
  if (!y.is_none() && !py::isinstance<Tensor>(y))
    throw py::type_error("Tensor " + std::string(sign) + " " + kind_text(y) +
                         ": the right side must be a Tensor; a number enters through b.scalar and "
                         "tensor.scale");
  const char* const name = op_def(op).name;
  return Builder::record(op, {x, tensor_arg({name, "y"}, y)}, {}, caller_site()).value();
}

template <Op op>
void add_sign(py::class_<Tensor>& c, const char* method, const char* sign) {
  c.def(method, [sign](const Tensor& x, py::object y) { return binary(op, x, y, sign); });
  const std::string reflected = std::string("__r") + (method + 2);
  c.def(reflected.c_str(), [sign](const Tensor&, py::object y) -> py::object {
    throw py::type_error(
        kind_text(y) + " " + sign +
        " Tensor: the left side must be a Tensor; a number enters through b.scalar "
        "and tensor.scale");
  });
}

py::object plane(const Tensor& t) {
  return t.null() ? py::none() : py::cast(t);
}

Int4 make_int4(py::object codes, py::object scales, py::object zeros, py::object weights,
               py::object group, py::object biases) {
  Int4 v;
  v.codes = tensor_arg({"Int4", "codes"}, codes);
  v.scales = tensor_arg({"Int4", "scales"}, scales);
  v.zeros = tensor_arg({"Int4", "zeros"}, zeros);
  v.biases = tensor_arg({"Int4", "biases"}, biases);
  // Left out, the count is 0, which every operator refuses by name.
  v.weights = weights.is_none() ? 0 : int_arg({"Int4", "weights"}, weights);
  v.group = int_arg({"Int4", "group"}, group);
  return v;
}

void add_tensor(py::module_& m) {
  py::class_<Tensor> c(m, "Tensor", py::is_final(), "An immutable value of one builder.");
  c.def_property_readonly("dtype", [](const Tensor& t) { return to_python(t.dtype()); })
      .def_property_readonly("shape", [](const Tensor& t) { return to_python(t.shape()); })
      .def_property_readonly("valid", &Tensor::valid)
      .def("__str__", &Tensor::to_string)
      .def("__repr__", &Tensor::to_string)
      .def("__bool__", [](const Tensor&) -> bool {
        throw py::type_error("a Tensor has no truth value: nothing is computed while recording");
      });
  add_sign<Op::add>(c, "__add__", "+");
  add_sign<Op::sub>(c, "__sub__", "-");
  add_sign<Op::mul>(c, "__mul__", "*");
  add_sign<Op::matmul>(c, "__matmul__", "@");
  c.attr("__array_ufunc__") = py::none();  // numpy leaves `array + tensor` to the tensor
}

void add_state(py::module_& m) {
  py::class_<State>(m, "State", py::is_final(), "One version of a range of a state.")
      .def_property_readonly("name", &State::name)
      .def_property_readonly("dtype", [](const State& s) { return to_python(s.dtype()); })
      .def_property_readonly("shape", [](const State& s) { return to_python(s.shape()); })
      .def_property_readonly("version", &State::version)
      .def_property_readonly("valid", &State::valid)
      .def("__str__", &State::to_string)
      .def("__repr__", &State::to_string);
}

void add_bundles(py::module_& m) {
  using namespace py::literals;
  py::class_<Quantized>(m, "Quantized", py::is_final(), "An int8 weight: quants and scales.")
      .def(py::init([](py::object quants, py::object scales) {
             return Quantized{tensor_arg({"Quantized", "quants"}, quants),
                              tensor_arg({"Quantized", "scales"}, scales)};
           }),
           "quants"_a, "scales"_a)
      .def_property_readonly("quants", [](const Quantized& q) { return plane(q.quants); })
      .def_property_readonly("scales", [](const Quantized& q) { return plane(q.scales); });
  py::class_<Int4>(m, "Int4", py::is_final(),
                   "An int4 weight: codes, scales, and either zeros or biases.")
      .def(py::init(&make_int4), "codes"_a, "scales"_a, "zeros"_a = py::none(),
           "weights"_a = py::none(), "group"_a = 128, py::kw_only(), "biases"_a = py::none())
      .def_property_readonly("codes", [](const Int4& w) { return plane(w.codes); })
      .def_property_readonly("scales", [](const Int4& w) { return plane(w.scales); })
      .def_property_readonly("zeros", [](const Int4& w) { return plane(w.zeros); })
      .def_property_readonly("biases", [](const Int4& w) { return plane(w.biases); })
      .def_readonly("weights", &Int4::weights)
      .def_readonly("group", &Int4::group);
}

}  // namespace

Tensor tensor_arg(Arg a, py::handle value) {
  return value.is_none() ? Tensor() : object_arg<Tensor>(a, value, "a Tensor");
}
State state_arg(Arg a, py::handle value) {
  return value.is_none() ? State() : object_arg<State>(a, value, "a State");
}

void add_values(py::module_& m) {
  add_tensor(m);
  add_state(m);
  add_bundles(m);
}

}  // namespace accel::bindings
