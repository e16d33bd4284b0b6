// _core._launches: how a recorded graph is launched on a GPU, without one, for tests.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include "graph/builder.h"
#include "plan/plan.h"

namespace py = pybind11;
using namespace py::literals;

namespace accel {

static py::dict row_of(const Launch& l, const std::string& kernel, size_t operands, size_t words,
                       size_t scalars, int64_t scratch) {
  return py::dict("kernel"_a = kernel, "function"_a = l.function, "threads"_a = l.threads,
                  "groups"_a = std::vector<uint32_t>(l.groups, l.groups + 3),
                  "operands"_a = operands,
                  "params"_a = 4 * (words - std::min(words, size_t(l.first_param))),
                  "scalars"_a = scalars, "scratch"_a = scratch, "group_bytes"_a = l.group_bytes);
}

static py::list launches_of(const Builder& builder, const std::string& backend, bool fuse) {
  Limits limits;
  limits.backend = backend.rfind("cuda", 0) == 0 ? Backend::cuda : Backend::metal;
  limits.matrix = backend == "cuda_matrix";
  if (backend == "cuda" || limits.matrix) limits.group_bytes = 227 * 1024;  // of sm_90
  limits.simd_groups = backend != "metal_plain";
  limits.fuse = fuse;
  const PlanData plan = make_plan(builder.finish(), limits, {}, true);
  py::list out;
  for (const Command& c : plan.commands)
    for (const Launch& l : c.launches.list)
      out.append(row_of(l, c.row->kernel,
                        l.operands.empty() ? c.operands.size() : l.operands.size(), c.params.size(),
                        c.scalars.size(), c.launches.scratch));
  for (const Combined& c : plan.combined)
    out.append(row_of(c.launch, "combined", c.operands.size(), c.params.size(), 0, 0));
  return out;
}

void bind_launches(py::module_& m) {
  m.def("_launches", &launches_of, "builder"_a, "backend"_a, "fuse"_a = false,
        "What a plan of a recorded graph launches on metal, metal_plain, cuda, cuda_plain or "
        "cuda_matrix, in order; with fuse the launches behind them that do the work of several.");
}

}  // namespace accel
