// _core.oracle: the float64 reference and the slow order walks, for tests.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "graph/builder.h"
#include "oracle/oracle.h"

namespace py = pybind11;

namespace accel {

static oracle::Level level_of(const std::string& name) {
  if (name == "f64") return oracle::Level::f64;
  if (name == "fma") return oracle::Level::fma;
  if (name == "base") return oracle::Level::base;
  throw attr_error("oracle", "level", "level is '" + name + "' and must be 'f64', 'fma' or 'base'");
}

static Backend backend_of(const std::string& name) {
  for (const Backend b : {Backend::cpu, Backend::metal, Backend::cuda})
    if (name == name_of(b)) return b;
  throw attr_error(
      "oracle", "backend",
      "backend is '" + name + "' and must be cpu, metal, metal_plain, cuda or cuda_matrix");
}

static py::array_t<double> array_of(const std::vector<double>& v, const Shape& shape) {
  py::array_t<double> out(std::vector<py::ssize_t>(shape.begin(), shape.end()));
  std::copy(v.begin(), v.end(), out.mutable_data());
  return out;
}

// Arrays carry only bytes here: the port says what they hold.
static py::dict run_oracle(const Builder& builder, const std::map<std::string, py::buffer>& ports,
                           const std::map<std::string, uint32_t>& scalars, const std::string& level,
                           bool budgets, const std::string& backend) {
  const Graph graph = builder.finish();
  oracle::Inputs inputs;
  std::vector<py::buffer_info> held;
  inputs.scalars = scalars;
  for (const PortDesc& port : graph.ports) {
    const auto it = ports.find(port.name);
    if (it == ports.end()) continue;
    held.push_back(it->second.request());
    const py::buffer_info& info = held.back();
    inputs.ports[port.name] = {port.dtype, info.ptr,
                               int64_t(info.size * info.itemsize) / size_of(port.dtype)};
  }
  py::dict result;
  const bool plain = backend == "metal_plain", matrix = backend == "cuda_matrix";
  const Backend own = plain ? Backend::metal : matrix ? Backend::cuda : backend_of(backend);
  const oracle::Options options = {level_of(level), budgets, own, !plain, matrix};
  for (const auto& [name, value] : oracle::evaluate(graph, inputs, options)) {
    py::object budget = py::none();
    if (budgets) budget = array_of(value.budget, value.type.shape);
    result[py::str(name)] = py::make_tuple(array_of(value.v, value.type.shape), budget);
  }
  return result;
}

void bind_oracle(py::module_& m) {
  m.def("oracle", &run_oracle, py::arg("builder"), py::arg("ports"),
        py::arg("scalars") = py::dict(), py::kw_only(), py::arg("level") = "f64",
        py::arg("budgets") = false, py::arg("backend") = "cpu",
        "Evaluate a recorded graph by the float64 reference, or walk its accumulation orders in "
        "f32: those of the backend's kernels.\n\n"
        "ports holds the bytes of inputs, weights and states; scalars their bits. Gives for each "
        "output and each\n"
        "written state (values, budgets) as float64 arrays; budgets is None unless asked for.");
}

}  // namespace accel
