// Plan and Bindings. submit() of prepared bindings is the hot path: no dict, no lookup, no
// conversion.
#include "bindings/bound.h"

namespace accel::bindings {
namespace {

// ---------------------------------------------------------------- bind

// Problems of the values come together with those that the plan finds.
template <class F>
auto with_problems(BoundValues& values, F f) {
  return unlocked([&] {
    values.wrap();
    try {
      return f();
    } catch (const Error& found) {
      if (values.problems().empty() || found.problems.empty()) throw;
      throw values.merged(found);
    }
  });
}

std::shared_ptr<Bindings> bind(Plan& plan, py::object bindings, py::object scalars) {
  BoundValues values(plan, "bind");
  values.add_buffers(bindings);
  values.add_scalars(scalars);
  return with_problems(values, [&] { return plan.bind(values.buffers, values.scalars); });
}

// The caller's own values, except where a packed buffer takes their place.
py::object pack(Plan& plan, py::object bindings) {
  BoundValues values(plan, "pack");
  values.add_buffers(bindings);
  const Packed packed = with_problems(values, [&] { return plan.pack(values.buffers); });
  py::dict result;
  if (!bindings.is_none()) result.attr("update")(bindings);
  for (const auto& [name, view] : packed.buffers)
    if (view.buffer != values.buffers.at(name).buffer) result[py::str(name)] = view.buffer;
  return make_named("Packed", result, packed.bytes, packed.seconds);
}

// ---------------------------------------------------------------- submit

std::vector<FencePtr> fences_arg(py::handle after) {
  std::vector<FencePtr> fences;
  if (PyTuple_Check(after.ptr()) && PyTuple_GET_SIZE(after.ptr()) == 0) return fences;
  const py::object items = items_arg({"submit", "after"}, after, "a sequence of Fence");
  for (py::handle item : py::reinterpret_borrow<py::sequence>(items))
    fences.push_back(fence_arg({"submit", "an entry of after"}, item));
  return fences;
}

// A closed plan and one in flight come before any problem of the values.
FencePtr add_problems(const Plan& plan, const BoundValues& values, FencePtr fence) {
  if (values.problems().empty()) return fence;
  const std::optional<Error> error = fence->error();
  if (error->kind != ErrorKind::bind || error->code == "in_flight" || plan.closed()) return fence;
  return Fence::failed(values.merged(*error));
}

FencePtr submit_values(Plan& plan, py::handle bindings, py::handle scalars, QueuePtr queue,
                       std::vector<FencePtr> after) {
  BoundValues values(plan, "submit");
  values.add_buffers(bindings);
  values.add_scalars(scalars);
  return unlocked([&] {
    try {
      values.wrap();
    } catch (const Error& e) { return Fence::failed(e); }
    return add_problems(
        plan, values,
        plan.submit(values.buffers, values.scalars, std::move(queue), std::move(after)));
  });
}

PyFence submit(Plan& plan, py::handle bindings, py::handle scalars, py::handle queue,
               py::handle after) {
  QueuePtr q;
  if (!queue.is_none()) q = pointer_arg<Queue>({"submit", "queue"}, queue, "a Queue or None");
  std::vector<FencePtr> fences = fences_arg(after);
  if (!py::isinstance<Bindings>(bindings))
    return PyFence(submit_values(plan, bindings, scalars, std::move(q), std::move(fences)));
  if (!scalars.is_none())
    throw py::type_error(
        "submit: scalars is given and must be None with prepared Bindings; "
        "bound.scalars[name] = value changes one");
  const Bindings& bound = bindings.cast<const Bindings&>();
  return PyFence(unlocked([&] { return plan.submit(bound, std::move(q), std::move(fences)); }));
}

// ---------------------------------------------------------------- Bindings

// bound.scalars: a handle on the same bindings.
struct BoundScalars {
  std::shared_ptr<Bindings> bound;
};

void set_buffer(Bindings& bound, py::object name, py::object value) {
  BoundValues values(*bound.plan(), "bind");
  values.add_buffer(text_arg({"bind", "name"}, name), value);
  with_problems(values, [&] { bound.update(values.buffers, values.scalars); });
}

void set_scalar(BoundScalars& scalars, py::object name, py::object value) {
  BoundValues values(*scalars.bound->plan(), "bind");
  values.add_scalar(text_arg({"bind", "name"}, name), value);
  with_problems(values, [&] { scalars.bound->update(values.buffers, values.scalars); });
}

void update(Bindings& bound, py::object bindings, py::object scalars) {
  BoundValues values(*bound.plan(), "update");
  values.add_buffers(bindings);
  values.add_scalars(scalars);
  with_problems(values, [&] { bound.update(values.buffers, values.scalars); });
}

void add_bindings(py::module_& m) {
  using namespace py::literals;
  py::class_<BoundScalars>(m, "BoundScalars", py::is_final(), sweeping(),
                           py::release_gil_before_calling_cpp_dtor(),
                           "Assigns scalars of prepared bindings by name.")
      .def("__setitem__", set_scalar, "name"_a, "value"_a);
  py::class_<Bindings, std::shared_ptr<Bindings>>(
      m, "Bindings", py::is_final(), sweeping(), py::release_gil_before_calling_cpp_dtor(),
      "A checked set of bindings of one plan, made by plan.bind; belongs to one thread.")
      .def("__setitem__", set_buffer, "name"_a, "value"_a)
      .def_property_readonly("scalars",
                             [](const std::shared_ptr<Bindings>& b) { return BoundScalars{b}; })
      .def_property_readonly("plan", [](const Bindings& b) { return b.plan(); })
      .def("update", update, "bindings"_a = py::none(), "scalars"_a = py::none(),
           "Assign several at once, all or nothing.");
}

// ---------------------------------------------------------------- reports

py::list ports(const Plan& plan) {
  py::list list;
  for (const PortDesc& p : plan.ports())
    list.append(make_named("PortDesc", p.name, to_python(p.kind), to_python(p.dtype),
                           to_python(p.shape), p.layout));
  return list;
}

py::list scalars(const Plan& plan) {
  py::list list;
  for (const ScalarDesc& s : plan.scalars())
    list.append(make_named("ScalarDesc", s.name, to_python(s.kind)));
  return list;
}

py::list selections(const Plan& plan) {
  py::list list;
  for (const Selection& s : plan.selections()) {
    py::list rejected;
    for (const std::string& why : s.rejected) rejected.append(why);
    list.append(make_named("KernelSelection", s.op, s.kernel, s.reason, py::tuple(rejected)));
  }
  return list;
}

py::object memory(const Plan& plan) {
  const GraphMemory g = plan.memory();
  return make_named("GraphMemory", g.unaliased_bytes, g.peak_bytes, g.transient_bytes);
}

}  // namespace

void add_plan(py::module_& m) {
  using namespace py::literals;
  add_bindings(m);
  py::class_<Plan, PlanPtr> plan(m, "Plan", py::is_final(), sweeping(),
                                 py::release_gil_before_calling_cpp_dtor(),
                                 "A compiled graph, submitted any number of times.");
  add_reports(m, plan);
  plan.def("submit", submit, "bindings"_a, "scalars"_a = py::none(), "queue"_a = py::none(),
           "after"_a = py::tuple(),
           "Queue one run and return its Fence. bindings is prepared Bindings, or a mapping of "
           "port name to\nBuffer, BufferView or numpy array together with one of scalars.")
      .def("bind", bind, "bindings"_a, "scalars"_a = py::none(),
           "Check a whole set of bindings once and keep it ready.")
      .def(
          "pack", pack, "bindings"_a,
          "The bindings with weights in the layouts that the plan's ports name: a dict with .bytes "
          "of the\nbuffers made and .seconds.")
      .def_property_readonly("label", &Plan::label)
      .def_property_readonly("runtime", &Plan::runtime)
      .def_property_readonly("closed", &Plan::closed)
      .def("memory", memory, "Bytes of transients, of one graph instance.")
      .def("ports", ports, "Every port in declaration order.")
      .def("scalars", scalars, "Every scalar in declaration order.")
      .def("selections", selections, "Kernels chosen, why, and what was rejected and why.")
      .def(
          "close",
          [](Plan& p) {
            unlocked([&] { p.close(); });
            sweep();
          },
          "Wait for what is in flight, then free.")
      .def("__repr__", [](const Plan& p) {
        return "<accel.Plan '" + p.label() + (p.closed() ? "' closed>" : "'>");
      });
}

}  // namespace accel::bindings
