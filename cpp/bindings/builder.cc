// Runtime and Builder.
#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

PortDesc port_args(const char* call, py::handle name, py::handle dtype, py::handle shape) {
  PortDesc p;
  p.name = text_arg({call, "name"}, name);
  p.dtype = dtype_arg({call, "dtype"}, dtype);
  p.shape = Shape(ints_arg({call, "shape"}, shape));
  return p;
}

Int4 declare_int4(Builder& b, py::object name, py::object shape, py::object group,
                  py::object affine, py::object dtype) {
  const std::string text = text_arg({"int4", "name"}, name);
  const Shape dims(ints_arg({"int4", "shape"}, shape));
  const int64_t g = int_arg({"int4", "group"}, group);
  const bool biases = bool_arg({"int4", "affine"}, affine);
  const DType t = dtype.is_none() ? DType::F16 : dtype_arg({"int4", "dtype"}, dtype);
  return b.int4(text, dims, g, biases, t, caller_site());
}

PlanPtr compile(const Builder& b, const py::args& args, const py::kwargs& kwargs) {
  const CompileOptions options = options_of("compile", args, kwargs);
  return unlocked([&] { return Plan::compile(b, options); });
}

Identity builder_identity(const Builder& b, const py::args& args, const py::kwargs& kwargs) {
  const CompileOptions options = options_of("identity", args, kwargs);
  return unlocked([&] { return identity(b, options); });
}

void add_declarations(py::class_<Builder>& c) {
  using namespace py::literals;
  c.def(
       "input",
       [](Builder& b, py::object name, py::object dtype, py::object shape) {
         const PortDesc p = port_args("input", name, dtype, shape);
         return b.input(p.name, p.dtype, p.shape, caller_site());
       },
       "name"_a, "dtype"_a, "shape"_a)
      .def(
          "weight",
          [](Builder& b, py::object name, py::object dtype, py::object shape) {
            const PortDesc p = port_args("weight", name, dtype, shape);
            return b.weight(p.name, p.dtype, p.shape, caller_site());
          },
          "name"_a, "dtype"_a, "shape"_a)
      .def(
          "state",
          [](Builder& b, py::object name, py::object dtype, py::object shape) {
            const PortDesc p = port_args("state", name, dtype, shape);
            return b.state(p.name, p.dtype, p.shape, caller_site());
          },
          "name"_a, "dtype"_a, "shape"_a)
      .def(
          "scalar",
          [](Builder& b, py::object name, py::object kind) {
            const std::string text = text_arg({"scalar", "name"}, name);
            return b.scalar(text, scalar_kind_arg({"scalar", "kind"}, kind), caller_site());
          },
          "name"_a, "kind"_a, "Declare a scalar; gives its name back.")
      .def(
          "output",
          [](Builder& b, py::object name, py::object value) {
            const std::string text = text_arg({"output", "name"}, name);
            b.output(text, tensor_arg({"output", "t"}, value), caller_site());
          },
          "name"_a, "t"_a)
      .def("int4", declare_int4, "name"_a, "shape"_a, py::kw_only(), "group"_a = 128,
           "affine"_a = false, "dtype"_a = py::none(),
           "Declare name.codes, name.scales and name.zeros (affine: name.biases); planes of F16 by "
           "default.")
      .def(
          "quantized",
          [](Builder& b, py::object name, py::object shape) {
            const std::string text = text_arg({"quantized", "name"}, name);
            return b.quantized(text, Shape(ints_arg({"quantized", "shape"}, shape)), caller_site());
          },
          "name"_a, "shape"_a, "Declare name.quants and name.scales.");
}

void add_runtime(py::module_& m) {
  using namespace py::literals;
  py::class_<Runtime, RuntimePtr>(m, "Runtime", py::is_final(), sweeping(),
                                  py::release_gil_before_calling_cpp_dtor(),
                                  "Compiles plans for one device and keeps its pipelines.")
      .def(py::init([](py::object device) {
             DevicePtr d;
             if (!device.is_none())
               d = pointer_arg<Device>({"Runtime", "device"}, device, "a Device");
             return unlocked([&] { return Runtime::create(d); });
           }),
           "device"_a)
      .def_property_readonly("device", &Runtime::device)
      .def(
          "new_builder",
          [](Runtime& r, py::object label) {
            return r.new_builder(text_or_empty({"new_builder", "label"}, label));
          },
          "label"_a = py::none())
      .def(
          "counters",
          [](const Runtime& r) {
            const Counters c = r.counters();
            return py::dict("built"_a = c.built, "planned"_a = c.planned,
                            "pipelines"_a = c.pipelines);
          },
          "How much was built, planned and made so far; no entry moves after warm-up.")
      .def_property_readonly("closed",
                             [](const Runtime& r) { return unlocked([&] { return r.closed(); }); })
      .def("close", [](Runtime& r) { unlocked([&] { r.close(); }); });
}

}  // namespace

void add_builder(py::module_& m) {
  using namespace py::literals;
  add_runtime(m);
  py::class_<Builder> c(m, "Builder", py::is_final(), sweeping(),
                        py::release_gil_before_calling_cpp_dtor(),
                        "Records one graph; belongs to one thread. Made by Runtime.new_builder.");
  add_declarations(c);
  c.def_property_readonly("label", &Builder::label)
      .def(
          "err",
          [](const Builder& b) -> py::object {
            const std::optional<Error> error = b.err();
            return error ? exception_of(*error) : py::none();
          },
          "None, or the GraphError with everything refused so far.")
      .def("compile", compile,
           "compile(label=None, max_in_flight=1, pool=None, fuse=True, pack=False, "
           "progress=None): compile the graph.\n\n"
           "max_in_flight submissions run at a time, each in a graph instance with transients of "
           "its own, made on\ndemand. pool lends the transients. fuse=False runs every node by "
           "itself; no bit\nchanges. pack=True may choose layouts of weights that plan.pack makes. "
           "progress is called as\nf(stage, done, total) and stops the compile by raising.")
      .def("identity", builder_identity,
           "The identity that compile with these options would give its plan.");
}

}  // namespace accel::bindings
