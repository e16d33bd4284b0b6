// The options of compile, identity and PlanCache.compile: read in one place, so that the three
// agree.
#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

// Progress runs with the interpreter lock; what it raises stops the compile and propagates.
Progress progress_of(const char* call, py::handle f) {
  if (f.is_none()) return {};
  if (!PyCallable_Check(f.ptr())) wrong_type({call, "progress"}, f, "callable");
  return [held = keep_alive(py::reinterpret_borrow<py::object>(f))](const std::string& stage,
                                                                    int done, int total) {
    py::gil_scoped_acquire acquire;
    py::handle(static_cast<PyObject*>(held.get()))(stage, done, total);
  };
}

struct Option {
  const char* name;
  void (*read)(CompileOptions& o, Arg a, py::handle value);
};

// In the order of the signature; those with a leading underscore are for tests.
const Option kOptions[] = {
    {"label", [](CompileOptions& o, Arg a, py::handle v) { o.label = text_or_empty(a, v); }},
    {"max_in_flight",
     [](CompileOptions& o, Arg a, py::handle v) { o.max_in_flight = int_arg(a, v); }},
    {"pool",
     [](CompileOptions& o, Arg a, py::handle v) {
       if (!v.is_none()) o.pool = pointer_arg<TransientPool>(a, v, "a TransientPool or None");
     }},
    {"fuse", [](CompileOptions& o, Arg a, py::handle v) { o.fuse = bool_arg(a, v); }},
    {"pack", [](CompileOptions& o, Arg a, py::handle v) { o.pack = bool_arg(a, v); }},
    {"progress",
     [](CompileOptions& o, Arg a, py::handle v) { o.progress = progress_of(a.call, v); }},
    {"_naive", [](CompileOptions& o, Arg a, py::handle v) { o.naive = bool_arg(a, v); }},
    {"_verify", [](CompileOptions& o, Arg a, py::handle v) { o.verify = bool_arg(a, v); }},
};

}  // namespace

CompileOptions options_of(const char* call, const py::args& args, const py::kwargs& kwargs) {
  CompileOptions options;
  std::vector<bool> given(std::size(kOptions));
  const auto read = [&](size_t i, py::handle value) {
    if (given[i])
      throw py::type_error(std::string(call) + ": " + kOptions[i].name + " is given twice");
    given[i] = true;
    kOptions[i].read(options, {call, kOptions[i].name}, value);
  };
  for (size_t i = 0; i < args.size(); ++i) {
    if (i == std::size(kOptions) || kOptions[i].name[0] == '_')
      throw py::type_error(std::string(call) + ": " + std::to_string(args.size()) +
                           " options are given by position and must be at most " +
                           std::to_string(i));
    read(i, args[i]);
  }
  for (auto item : kwargs) {
    const std::string name = py::str(item.first);
    size_t i = 0;
    while (i < std::size(kOptions) && name != kOptions[i].name) ++i;
    if (i == std::size(kOptions))
      throw py::type_error(std::string(call) + ": there is no option '" + name + "'");
    read(i, item.second);
  }
  return options;
}

}  // namespace accel::bindings
