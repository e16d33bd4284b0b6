// The bound classes once they are whole: an object exists only with its C++ value. pybind11 looks
// for that value after a call of the class alone, so that __new__ by itself, and pickle and copy
// through it, would hand out memory that nothing has written.
#include <cstring>

#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

// Where the objects of classes without a constructor come from.
struct Origin {
  const char* name;
  const char* from;
};
const Origin kOrigins[] = {
    {"DType", "accel.F32, F16, BF16, I32, U32, I8 and U8"},
    {"ScalarKind", "ScalarKind.U32 and ScalarKind.F32"},
    {"PortKind", "PortKind.INPUT, WEIGHT, STATE and OUTPUT"},
    {"ScalarValue", "tensor.u32 and tensor.f32"},
    {"Device", "accel.open_cpu, open_best and open_device"},
    {"TransientPool", "device.new_transient_pool"},
    {"Buffer", "device.new_buffer, device.buffer and device.from_dlpack"},
    {"Queue", "device.queue and device.new_queue"},
    {"Fence", "plan.submit and queue.write_buffer"},
    {"Tensor", "builder.input, builder.weight and the operators"},
    {"State", "builder.state and the operators that write one"},
    {"Builder", "runtime.new_builder"},
    {"Plan", "builder.compile"},
    {"Bindings", "plan.bind"},
    {"BoundScalars", "bindings.scalars"},
    {"Identity", "plan.identity and builder.identity"},
    {"PlanTrace", "plan.trace"},
};

const char* short_name(const PyTypeObject* type) {
  const char* dot = std::strrchr(type->tp_name, '.');
  return dot ? dot + 1 : type->tp_name;
}

PyObject* refuse_making(PyTypeObject* type, PyObject*, PyObject*) {
  const char* from = "accel";
  for (const Origin& o : kOrigins)
    if (std::strcmp(o.name, short_name(type)) == 0) from = o.from;
  return PyErr_Format(PyExc_TypeError, "%s: cannot be made by a call; its objects come from %s",
                      short_name(type), from);
}

// Of pybind11's own base class, which has no value to make.
PyObject* base_new(PyTypeObject* type, PyObject*, PyObject*) {
  try {
    if (!py::detail::all_type_info(type).empty()) return py::detail::make_new_instance(type);
  } catch (const std::exception& e) { return PyErr_Format(PyExc_TypeError, "%s", e.what()); }
  return PyErr_Format(PyExc_TypeError, "%s: cannot be made; it is a base without a value",
                      short_name(type));
}

// The first half of a call of the class; __init__, which makes the value, always follows.
PyObject* called_new(PyTypeObject* type, PyObject*, PyObject*) {
  try {
    return py::detail::make_new_instance(type);
  } catch (const std::exception&) { return PyErr_NoMemory(); }
}

// What Python finds as __new__, which a call of the class does not come by.
PyObject* refuse_new(PyObject* type, PyObject*, PyObject*) {
  auto* const t = reinterpret_cast<PyTypeObject*>(type);
  if (t->tp_new == refuse_making) return refuse_making(t, nullptr, nullptr);
  return PyErr_Format(PyExc_TypeError, "%s.__new__ makes no object; call %s(...)", short_name(t),
                      short_name(t));
}
PyMethodDef refused_new = {"__new__",
                           reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(refuse_new)),
                           METH_VARARGS | METH_KEYWORDS, nullptr};

// The enumerations pickle by name.
void refuse_pickling(py::handle type) {
  if (type.attr("__dict__").contains("__reduce__")) return;
  const std::string name = short_name(reinterpret_cast<PyTypeObject*>(type.ptr()));
  for (const char* method : {"__reduce__", "__reduce_ex__"})
    py::setattr(type, method,
                py::cpp_function(
                    [name](const py::handle&, const py::args&) -> py::object {
                      throw py::type_error("cannot pickle '" + name + "' object");
                    },
                    py::name(method), py::is_method(type)));
}

void seal(py::handle object) {
  refuse_pickling(object);
  auto* const type = reinterpret_cast<PyTypeObject*>(object.ptr());
  const py::object refused =
      py::reinterpret_steal<py::object>(PyCFunction_NewEx(&refused_new, object.ptr(), nullptr));
  // Past setattr, which would route a call of the class through it.
  if (!refused || PyDict_SetItemString(type->tp_dict, "__new__", refused.ptr()) != 0)
    throw py::error_already_set();
  type->tp_new = type->tp_init == py::detail::pybind11_object_init ? refuse_making : called_new;
  // An object's class decides which value is looked for in it: neither may change.
  type->tp_flags |= Py_TPFLAGS_IMMUTABLETYPE;
  PyType_Modified(type);
}

}  // namespace

// The base is shared with other modules of pybind11, whose classes have its tp_new: Python compares
// the two before it calls either.
static void replace_new(PyTypeObject* type, newfunc old, newfunc made) {
  if (type->tp_new != old) return;
  type->tp_new = made;
  PyType_Modified(type);
  const py::handle object(reinterpret_cast<PyObject*>(type));
  for (py::handle sub : object.attr("__subclasses__")())
    replace_new(reinterpret_cast<PyTypeObject*>(sub.ptr()), old, made);
}

void seal_classes(py::module_& m) {
  auto* const base = reinterpret_cast<PyTypeObject*>(py::detail::get_internals().instance_base);
  replace_new(base, base->tp_new, base_new);
  for (const auto& [name, object] : m.attr("__dict__").cast<py::dict>())
    if (PyType_Check(object.ptr()) &&
        PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object.ptr()), base))
      seal(object);
}

}  // namespace accel::bindings
