// Values of a binding set: buffers, views, arrays used in place, numbers for scalars.
#include "bindings/bound.h"

#include <cmath>

namespace accel::bindings {
namespace {

const PortDesc* find_port(const Plan& plan, const std::string& name) {
  for (const PortDesc& port : plan.data().graph.ports)
    if (port.name == name) return &port;
  return nullptr;
}

const ScalarDesc* find_scalar(const Plan& plan, const std::string& name) {
  for (const ScalarDesc& scalar : plan.data().graph.scalars)
    if (scalar.name == name) return &scalar;
  return nullptr;
}

// Calls f(name, value) for each item of a mapping with text keys.
template <class F>
void each_item(const char* call, const char* what, py::handle mapping, F f) {
  if (mapping.is_none()) return;
  const std::string key = std::string("a key of ") + what;
  if (!PyDict_Check(mapping.ptr())) {
    if (!py::isinstance(mapping, py::module_::import("collections.abc").attr("Mapping")))
      wrong_type({call, what}, mapping, "a dict or another mapping");
    for (py::handle name : mapping) {
      const py::object value = mapping[name];
      f(text_arg({call, key.c_str()}, name), value);
    }
    return;
  }
  for (auto item : py::reinterpret_borrow<py::dict>(mapping))
    f(text_arg({call, key.c_str()}, item.first), item.second);
}

Problem bad_number(const std::string& name, py::handle value, const char* must) {
  const std::string is = PyBool_Check(value.ptr()) ? "a bool" : std::string(py::repr(value));
  return {"kind", name, "scalar " + name + " is " + is + " and must be " + must};
}

}  // namespace

void BoundValues::refuse_buffer(Problem problem) {
  buffers[problem.name] = {};
  refused_.insert(problem.name);
  problems_.push_back(std::move(problem));
}

void BoundValues::refuse_scalar(Problem problem, ScalarKind kind) {
  scalars[problem.name] = kind == ScalarKind::U32 ? f32(0) : u32(0);
  refused_.insert(problem.name);
  problems_.push_back(std::move(problem));
}

void BoundValues::add_buffers(py::handle dict) {
  each_item(call_, "bindings", dict,
            [&](const std::string& name, py::handle value) { add_buffer(name, value); });
}

void BoundValues::add_scalars(py::handle dict) {
  each_item(call_, "scalars", dict,
            [&](const std::string& name, py::handle value) { add_scalar(name, value); });
}

void BoundValues::add_buffer(const std::string& name, py::handle value) {
  if (py::isinstance<Buffer>(value)) {
    const BufferPtr b = value.cast<BufferPtr>();
    buffers[name] = {b, b->dtype, 0, b->count};
  } else if (py::isinstance<BufferView>(value)) {
    buffers[name] = value.cast<const BufferView&>();
  } else if (py::isinstance<py::array>(value)) {
    add_array(name, host_array(py::reinterpret_borrow<py::array>(value)));
  } else {
    wrong_type({call_, name.c_str()}, value, "a Buffer, a BufferView or a numpy array");
  }
}

void BoundValues::add_array(const std::string& name, HostArray a) {
  const PortDesc* port = find_port(plan_, name);
  if (!port) {
    buffers[name] = {};  // the plan says that it has no such port
    return;
  }
  const bool written = port->kind == PortKind::State || port->kind == PortKind::Output;
  const DevicePtr& device = plan_.runtime()->device();
  if (!device->wraps())
    return refuse_buffer({"foreign", name,
                          name + " is a " + a.type_text() + " array and must be a buffer on " +
                              device->info().backend + "; device.buffer(array) makes the copy"});
  if (auto problem = in_place_problem(*port, a, written)) return refuse_buffer(std::move(*problem));
  arrays_.push_back({name, a.data, port->dtype, a.count, a.writable, keep_alive(a.array)});
}

void BoundValues::add_scalar(const std::string& name, py::handle value) {
  if (py::isinstance<ScalarValue>(value)) {
    scalars[name] = value.cast<const ScalarValue&>();
    return;
  }
  const bool flag = PyBool_Check(value.ptr());
  if (!flag && !is_real(value))
    wrong_type({call_, name.c_str()}, value, "a number or a ScalarValue");
  const ScalarDesc* scalar = find_scalar(plan_, name);
  if (!scalar || scalar->kind == ScalarKind::F32) {
    const ScalarKind kind = ScalarKind::F32;
    if (flag) return refuse_scalar(bad_number(name, value, "a number"), kind);
    const float v = f32_of(value);
    if (std::isinf(v) && is_finite(value))
      return refuse_scalar(bad_number(name, value, "a number that rounds to a finite f32"), kind);
    scalars[name] = f32(v);
    return;
  }
  const auto refuse = [&] {
    refuse_scalar(bad_number(name, value, "an integer in [0, 4294967295]"), ScalarKind::U32);
  };
  if (flag || !is_int(value)) return refuse();
  const py::object number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  int overflow = 0;
  const long long v = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow || v < 0 || v > int64_t(UINT32_MAX)) return refuse();
  scalars[name] = u32(uint32_t(v));
}

void BoundValues::wrap() {
  const DevicePtr& device = plan_.runtime()->device();
  for (Array& a : arrays_) {
    const BufferPtr b =
        device->wrap(a.data, a.dtype, a.count, a.writable, std::move(a.owner), a.name);
    buffers[a.name] = {b, a.dtype, 0, a.count};
  }
  arrays_.clear();
}

Error BoundValues::merged(const Error& found) const {
  std::vector<Problem> all = problems_;
  for (const Problem& p : found.problems)
    if (p.code == "unknown" || !refused_.count(p.name)) all.push_back(p);
  return bind_error(std::move(all));
}

}  // namespace accel::bindings
