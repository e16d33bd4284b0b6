// accel._core: the parts in the order in which they use each other.
#include "bindings/bindings.h"

PYBIND11_MODULE(_core, m) {
  using namespace accel::bindings;
  m.doc() = "The C++ core of accel. Use the packages accel, accel.tensor and accel.quant.";
  py::object file = py::module_::import("accel").attr("__file__");
  const std::string path = file.cast<std::string>();
  remember_package_folder(path.substr(0, path.find_last_of("/\\")));
  add_errors(m);
  add_types(m);
  add_devices(m);
  add_buffers(m);
  add_queues(m);
  add_values(m);
  add_builder(m);
  add_operators(m);
  add_sampling(m);
  add_sample_rows(m);
  add_plan(m);
  add_pools(m);
  add_quant(m);
  add_testing(m);
  seal_classes(m);
}
