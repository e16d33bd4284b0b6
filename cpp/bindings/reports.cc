// Identity, PlanCache, and the reports of a plan that go to a file.
#include "bindings/bindings.h"
#include "runtime/files.h"
#include "runtime/plan_cache.h"

namespace accel::bindings {
namespace {

std::string path_arg(Arg a, py::handle value) {
  py::object path = py::reinterpret_steal<py::object>(PyOS_FSPath(value.ptr()));
  if (!path) {
    PyErr_Clear();
    wrong_type(a, value, "a str or a path");
  }
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &bytes)) throw py::error_already_set();
  return py::reinterpret_steal<py::bytes>(bytes);
}

// ---------------------------------------------------------------- trace

// plan.trace(path): begins on entry, waits and writes on exit.
struct PlanTrace {
  PlanTrace(PlanPtr p, std::string to) : plan(std::move(p)), path(std::move(to)) {}
  PlanTrace(const PlanTrace&) = delete;
  ~PlanTrace() {
    if (entered && !forked()) plan->drop_trace();
  }
  PlanPtr plan;
  std::string path;
  bool entered = false;
};

void enter_trace(PlanTrace& t) {
  unlocked([&] {
    t.plan->begin_trace();
    try {
      write_file(t.path, "");  // a path that cannot be written is found before the work
    } catch (...) {
      t.plan->end_trace();
      throw;
    }
  });
  t.entered = true;
}

void exit_trace(PlanTrace& t, const py::args&) {
  t.entered = false;
  unlocked([&] { write_file(t.path, t.plan->end_trace(poll_signals)); });
}

// ---------------------------------------------------------------- identity

py::bytes bytes_of(const Digest& d) {
  return py::bytes(reinterpret_cast<const char*>(d.data()), d.size());
}

void add_identity(py::module_& m) {
  py::class_<Identity>(m, "Identity", py::is_final(),
                       "What makes two plans the same: SHA-256 digests of the graph, of the "
                       "kernels' arithmetic and of where and how it runs.")
      .def_property_readonly("semantic",
                             [](const Identity& i) { return bytes_of(i.semantic.digest); })
      .def_property_readonly("numerical",
                             [](const Identity& i) { return bytes_of(i.numerical.digest); })
      .def_property_readonly("deployment",
                             [](const Identity& i) { return bytes_of(i.deployment.digest); })
      .def_property_readonly("hex", &Identity::hex)
      .def("__str__", &Identity::to_string)
      .def("__repr__", [](const Identity& i) { return "<accel.tensor.Identity " + i.hex() + ">"; })
      .def(
          "__eq__", [](const Identity& a, const Identity& b) { return a == b; }, py::is_operator())
      .def("__hash__", [](const Identity& i) { return py::hash(py::str(i.hex())); });
}

// ---------------------------------------------------------------- cache

PlanPtr compile_cached(PlanCache& cache, py::object record, const py::kwargs& kwargs) {
  if (!PyCallable_Check(record.ptr())) wrong_type({"compile", "record"}, record, "callable");
  const CompileOptions options = options_of("compile", py::args(), kwargs);
  return unlocked([&] {
    return cache.compile(
        [&](Builder& builder) {
          py::gil_scoped_acquire acquire;
          record(py::cast(builder));
        },
        options);
  });
}

void add_cache(py::module_& m) {
  using namespace py::literals;
  py::class_<PlanCache>(m, "PlanCache", py::is_final(), sweeping(),
                        py::release_gil_before_calling_cpp_dtor(),
                        "Keeps plans by identity, so that a graph recorded again is not compiled "
                        "again. Nothing is evicted;\nsafe to share between threads.")
      .def(py::init([](py::object runtime, py::object collide) {
             RuntimePtr r;
             if (!runtime.is_none())
               r = pointer_arg<Runtime>({"PlanCache", "runtime"}, runtime, "a Runtime");
             PlanCache::Index index;
             if (bool_arg({"PlanCache", "_collide"}, collide))
               index = [](const Identity&) { return std::string(); };
             return std::make_unique<PlanCache>(r, index);
           }),
           "runtime"_a, py::kw_only(), "_collide"_a = false)
      .def("compile", compile_cached, "record"_a,
           "record(builder) into a fresh builder; the kept plan of the same identity, or a new one."
           "\n\nOptions are those of Builder.compile. Neither record nor progress may call back "
           "into the cache.")
      .def_property_readonly("runtime", [](const PlanCache& c) { return c.runtime(); })
      .def_property_readonly("closed", &PlanCache::closed)
      .def("__len__", &PlanCache::size)
      .def(
          "close", [](PlanCache& c) { unlocked([&] { c.close(); }); }, "Close all plans.");
}

}  // namespace

void add_reports(py::module_& m, py::class_<Plan, PlanPtr>& plan) {
  using namespace py::literals;
  add_identity(m);
  add_cache(m);
  py::class_<PlanTrace>(m, "PlanTrace", py::is_final(), "A plan being traced; made by plan.trace.")
      .def("__enter__",
           [](py::object self) {
             enter_trace(self.cast<PlanTrace&>());
             return self;
           })
      .def("__exit__", exit_trace);
  plan.def_property_readonly("identity", [](const Plan& p) { return p.identity(); })
      .def("explain", &Plan::explain, "The whole plan as text.")
      .def("to_dot", &Plan::to_dot,
           "The plan as Graphviz text: data edges, barriers, shared bytes.")
      .def(
          "memory_map",
          [](const Plan& p, py::object path) {
            const std::string to = path_arg({"memory_map", "path"}, path);
            unlocked([&] { p.memory_map(to); });
          },
          "path"_a, "Write each transient's users, offset and size; path ends in .json or .svg.")
      .def(
          "trace",
          [](const PlanPtr& p, py::object path) {
            return std::make_unique<PlanTrace>(p, path_arg({"trace", "path"}, path));
          },
          "path"_a,
          "A context manager: submissions inside are timed node by node, and on exit a Chrome "
          "trace\n(JSON, for Perfetto) is written.");
}

}  // namespace accel::bindings
