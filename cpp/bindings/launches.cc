// _core._launches: how a recorded graph is launched on a GPU, without one, for tests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "graph/builder.h"
#include "plan/plan.h"

namespace py = pybind11;
using namespace py::literals;

namespace accel {

static py::list launches_of(const Builder& builder, const std::string& backend) {
  Limits limits;
  limits.backend = backend.rfind("cuda", 0) == 0 ? Backend::cuda : Backend::metal;
  if (backend == "cuda") limits.group_bytes = 227 * 1024;  // of sm_90
  limits.simd_groups = backend != "metal_plain";
  const PlanData plan = make_plan(builder.finish(), limits, {}, true);
  py::list out;
  for (const Command& c : plan.commands)
    for (const Launch& l : c.launches.list)
      out.append(py::dict(
          "kernel"_a = c.row->kernel, "function"_a = l.function, "threads"_a = l.threads,
          "groups"_a = std::vector<uint32_t>(l.groups, l.groups + 3),
          "operands"_a = l.operands.empty() ? c.operands.size() : l.operands.size(),
          "params"_a = 4 * (c.params.size() - std::min(c.params.size(), size_t(l.first_param))),
          "scalars"_a = c.scalars.size(), "scratch"_a = c.launches.scratch,
          "group_bytes"_a = l.group_bytes));
  return out;
}

void bind_launches(py::module_& m) {
  m.def("_launches", &launches_of, "builder"_a, "backend"_a,
        "What a plan of a recorded graph launches on metal, metal_plain, cuda or cuda_plain, "
        "in order.");
}

}  // namespace accel
