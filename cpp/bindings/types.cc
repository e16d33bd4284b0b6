// The enumerations as objects: one object a value, so that `is` works; their text is the C++ word.
#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

template <class E>
struct Word {
  E value;
  const char* word;  // Python's name of it
};

// Made once and never freed: they are module attributes.
template <class E>
std::vector<Word<E>>& words() {
  static auto* all = new std::vector<Word<E>>();
  return *all;
}

template <class E>
py::object word_object(E value) {
  return py::cast(&words<E>()[size_t(value)], py::return_value_policy::reference);
}

template <class E>
py::class_<Word<E>> add_words(py::module_& m, const char* name, std::vector<const char*> names) {
  py::class_<Word<E>> c(m, name, py::is_final());
  const std::string prefix = std::string(name) + ".";
  c.def("__str__", [](const Word<E>& w) { return name_of(w.value); });
  c.def("__repr__", [prefix](const Word<E>& w) { return prefix + w.word; });
  c.def("__reduce__", [prefix](const Word<E>& w) { return prefix + w.word; });
  c.def_property_readonly("value", [](const Word<E>& w) { return int(w.value); });
  for (size_t i = 0; i < names.size(); ++i) words<E>().push_back({E(i), names[i]});
  for (size_t i = 0; i < names.size(); ++i) c.attr(names[i]) = word_object(E(i));
  return c;
}

void add_scalar_value(py::module_& m) {
  py::class_<ScalarValue>(m, "ScalarValue", py::is_final())
      .def_property_readonly("kind", [](const ScalarValue& v) { return to_python(v.kind); })
      .def_readonly("u32", &ScalarValue::u32)
      .def_readonly("f32", &ScalarValue::f32)
      .def("__str__", &ScalarValue::to_string)
      .def("__repr__", &ScalarValue::to_string)
      .def(
          "__eq__",
          [](const ScalarValue& a, const ScalarValue& b) {
            return a.kind == b.kind && a.bits() == b.bits();
          },
          py::is_operator())
      .def("__hash__",
           [](const ScalarValue& v) { return int64_t(v.bits()) * 2 + int64_t(v.kind); });
  m.def(
      "u32",
      [](py::object value) {
        const int64_t v = int_arg({"u32", "value"}, value);
        if (v < 0 || v > int64_t(UINT32_MAX))
          throw attr_error(
              "u32", "value",
              "u32: value is " + std::to_string(v) + " and must be in [0, 4294967295]");
        return u32(uint32_t(v));
      },
      py::arg("value"));
  m.def(
      "f32",
      [](py::object value) {
        const float v = f32_arg({"f32", "value"}, value);
        if (std::isinf(v) && is_finite(value))
          throw attr_error(
              "f32", "value",
              "f32: value is " + std::string(py::str(value)) + " and must round to a finite f32");
        return f32(v);
      },
      py::arg("value"));
}

}  // namespace

py::object to_python(DType t) {
  return word_object(t);
}
py::object to_python(ScalarKind k) {
  return word_object(k);
}
py::object to_python(PortKind k) {
  return word_object(k);
}

py::object to_python(const Shape& s) {
  py::tuple dims(size_t(s.rank()));
  for (int i = 0; i < s.rank(); ++i) dims[size_t(i)] = s[i];
  return make_named("Shape", dims);
}

DType dtype_arg(Arg a, py::handle value) {
  return object_arg<Word<DType>>(a, value, "a DType such as accel.F32").value;
}
ScalarKind scalar_kind_arg(Arg a, py::handle value) {
  return object_arg<Word<ScalarKind>>(a, value, "ScalarKind.U32 or ScalarKind.F32").value;
}

void add_types(py::module_& m) {
  auto dtype = add_words<DType>(m, "DType", {"F32", "F16", "BF16", "I32", "U32", "I8", "U8"});
  dtype.def_property_readonly(
      "size", [](const Word<DType>& w) { return size_of(w.value); }, "Bytes of one element.");
  dtype.attr("__doc__") = "Element type of a tensor or buffer.";
  add_words<ScalarKind>(m, "ScalarKind", {"U32", "F32"}).attr("__doc__") = "Kind of a scalar.";
  add_words<PortKind>(m, "PortKind", {"INPUT", "WEIGHT", "STATE", "OUTPUT"}).attr("__doc__") =
      "What a port is for.";
  add_scalar_value(m);
}

}  // namespace accel::bindings
