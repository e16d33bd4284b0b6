// Python values to C++ ones. A value of the wrong Python type is a TypeError; no number changes its
// kind silently.
#include "bindings/bindings.h"

#include <bit>
#include <cmath>

namespace accel::bindings {

std::string kind_text(py::handle value) {
  if (value.is_none()) return "None";
  const std::string name = Py_TYPE(value.ptr())->tp_name;
  const std::string last = name.substr(name.rfind('.') + 1);
  const bool vowel = std::string("aeiouAEIO").find(last[0]) != std::string::npos;
  return (vowel ? "an " : "a ") + last;
}

void wrong_type(Arg a, py::handle value, const std::string& must) {
  throw py::type_error(std::string(a.call) + ": " + a.name + " is " + kind_text(value) +
                       " and must be " + must);
}

std::string text_arg(Arg a, py::handle value) {
  if (!PyUnicode_Check(value.ptr())) wrong_type(a, value, "a str");
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text) return std::string(text, size_t(size));
  PyErr_Clear();
  wrong_type(a, value, "a str without lone surrogates");
}

std::string text_or_empty(Arg a, py::handle value) {
  return value.is_none() ? std::string() : text_arg(a, value);
}

// numpy's own number classes, looked up once numpy is there; numpy.bool is neither.
static bool is_numpy(py::handle value, const char* base) {
  const char* type = Py_TYPE(value.ptr())->tp_name;
  if (std::string_view(type).substr(0, 6) != "numpy.") return false;
  return py::isinstance(value, py::module_::import("numpy").attr(base));
}

bool is_int(py::handle value) {
  if (PyBool_Check(value.ptr())) return false;
  return PyLong_Check(value.ptr()) || is_numpy(value, "integer");
}

bool is_real(py::handle value) {
  return PyFloat_Check(value.ptr()) || is_int(value) || is_numpy(value, "floating");
}

int64_t int_arg(Arg a, py::handle value) {
  if (!is_int(value)) wrong_type(a, value, "an int");
  py::object number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) throw py::error_already_set();
  int overflow = 0;
  const long long v = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow) {
    PyErr_Format(PyExc_OverflowError, "%s: %s is %S and must fit in 64 bits", a.call, a.name,
                 number.ptr());
    throw py::error_already_set();
  }
  return v;
}

bool bool_arg(Arg a, py::handle value) {
  if (!PyBool_Check(value.ptr())) wrong_type(a, value, "a bool");
  return value.ptr() == Py_True;
}

static double double_of(py::handle value) {
  const double v = PyFloat_AsDouble(value.ptr());
  if (v == -1.0 && PyErr_Occurred()) throw py::error_already_set();
  return v;
}

double real_arg(Arg a, py::handle value) {
  if (!is_real(value)) wrong_type(a, value, "a float");
  return double_of(value);
}

// An int of any size, rounded once. Beyond 64 bits the top 64 are kept and the rest is folded into
// their last bit, which sits far below f32's last place and only breaks ties.
static float f32_of_int(py::object v) {
  const bool negative = v < py::int_(0);
  if (negative) v = -v;
  const int bits = v.attr("bit_length")().cast<int>();
  float magnitude = 0;
  if (bits <= 64) {
    magnitude = float(v.cast<uint64_t>());
  } else if (bits > 129) {
    magnitude = HUGE_VALF;
  } else {
    const py::int_ shift(bits - 64);
    py::object top = v >> shift;
    const bool rest = !(top << shift).equal(v);
    magnitude = std::ldexp(float(top.cast<uint64_t>() | uint64_t(rest)), bits - 64);
  }
  return negative ? -magnitude : magnitude;
}

// A number wider than f64, rounded to odd: what is then rounded to f32 is rounded once.
static double double_of_wide(py::handle value) {
  const double near = double_of(value);
  const bool odd = std::bit_cast<uint64_t>(near) & 1;
  if (!std::isfinite(near) || odd || double(float(near)) == near) return near;
  const py::object wide = py::reinterpret_borrow<py::object>(value);
  const py::object back = py::type::of(value)(near);
  if (back.equal(wide)) return near;
  return std::nextafter(near, back < wide ? HUGE_VAL : -HUGE_VAL);
}

bool is_finite(py::handle value) {
  if (is_int(value)) return true;
  if (PyFloat_Check(value.ptr())) return std::isfinite(double_of(value));
  return py::bool_(py::module_::import("numpy").attr("isfinite")(value));
}

float f32_of(py::handle value) {
  if (PyFloat_Check(value.ptr())) return float(PyFloat_AS_DOUBLE(value.ptr()));
  if (!is_int(value)) return float(double_of_wide(value));
  py::object number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) throw py::error_already_set();
  return f32_of_int(number);
}

float f32_arg(Arg a, py::handle value) {
  if (!is_real(value)) wrong_type(a, value, "a float");
  return f32_of(value);
}

py::object items_arg(Arg a, py::handle value, const char* must) {
  const bool text = PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr());
  if (text || !PySequence_Check(value.ptr())) wrong_type(a, value, must);
  py::object items = py::reinterpret_steal<py::object>(PySequence_Fast(value.ptr(), "a sequence"));
  if (items) return items;
  // An array of rank 0 looks like a sequence and is none.
  if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw py::error_already_set();
  PyErr_Clear();
  wrong_type(a, value, must);
}

std::vector<int64_t> ints_arg(Arg a, py::handle value) {
  std::vector<int64_t> result;
  const py::object items = items_arg(a, value, "a sequence of ints");
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.ptr()); ++i) {
    const std::string name = std::string(a.name) + "[" + std::to_string(i) + "]";
    result.push_back(int_arg({a.call, name.c_str()}, PySequence_Fast_GET_ITEM(items.ptr(), i)));
  }
  return result;
}

}  // namespace accel::bindings
