// Shared by the binding files: argument conversion, the caller's line, exceptions, host arrays,
// deferred drops. This layer converts and names things; it decides nothing. Only cpp/bindings
// includes pybind11.
#pragma once
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/fork.h"
#include "exec/release.h"
#include "runtime/runtime.h"

namespace accel::bindings {
namespace py = pybind11;

// ---------------------------------------------------------------- the parts of the module
void add_errors(py::module_& m);
void add_types(py::module_& m);
void add_devices(py::module_& m);
void add_buffers(py::module_& m);
void add_queues(py::module_& m);
void add_values(py::module_& m);
void add_builder(py::module_& m);
void add_operators(py::module_& m);
void add_sampling(py::module_& m);
void add_sample_rows(py::module_& m);
void add_plan(py::module_& m);
void add_pools(py::module_& m);
void add_reports(py::module_& m, py::class_<Plan, PlanPtr>& plan);
void add_quant(py::module_& m);
void add_testing(py::module_& m);
// Last: no class of the module makes an object without its C++ value.
void seal_classes(py::module_& m);

// ---------------------------------------------------------------- site
// The nearest frame whose file does not lie directly in the package's own folder.
Site caller_site();
void remember_package_folder(const std::string& folder);

// ---------------------------------------------------------------- errors
// The Python exception object of an error, not raised.
py::object exception_of(const Error& error);

// ---------------------------------------------------------------- arguments
// Every converter raises TypeError "<call>: <argument> is <what it is> and must be <what it must
// be>".
struct Arg {
  const char* call;
  const char* name;
};
[[noreturn]] void wrong_type(Arg a, py::handle value, const std::string& must);
std::string kind_text(py::handle value);  // "a list", "an int", "None"
std::string text_arg(Arg a, py::handle value);
std::string text_or_empty(Arg a, py::handle value);  // None gives ""
int64_t int_arg(Arg a, py::handle value);            // bool is not an int
bool bool_arg(Arg a, py::handle value);
double real_arg(Arg a, py::handle value);  // int or float, never bool
float f32_arg(Arg a, py::handle value);    // rounded once, to nearest even
std::vector<int64_t> ints_arg(Arg a, py::handle value);
// The items of a sequence that is no text, as a list or tuple.
py::object items_arg(Arg a, py::handle value, const char* must);
DType dtype_arg(Arg a, py::handle value);
ScalarKind scalar_kind_arg(Arg a, py::handle value);
bool is_int(py::handle value);     // int or numpy integer, not bool
bool is_real(py::handle value);    // is_int, float or numpy floating
float f32_of(py::handle value);    // of is_real values, rounded once
bool is_finite(py::handle value);  // of is_real values, before any rounding

// Options of compile by position and name; TypeError for what is none.
CompileOptions options_of(const char* call, const py::args& args, const py::kwargs& kwargs);

// A pointer to the C++ object inside, or a TypeError. `must` names the Python class.
template <class T>
T& object_arg(Arg a, py::handle value, const char* must) {
  if (!py::isinstance<T>(value)) wrong_type(a, value, must);
  return value.cast<T&>();
}
template <class T>
std::shared_ptr<T> pointer_arg(Arg a, py::handle value, const char* must) {
  if (!py::isinstance<T>(value)) wrong_type(a, value, must);
  return value.cast<std::shared_ptr<T>>();
}

// None gives the null handle, which the core reports by name.
Tensor tensor_arg(Arg a, py::handle value);
State state_arg(Arg a, py::handle value);

// ---------------------------------------------------------------- small values
py::object to_python(DType t);
py::object to_python(ScalarKind k);
py::object to_python(PortKind k);
py::object to_python(const Shape& s);
// The class of python/accel/_types.py with this name, called with these arguments.
template <class... Args>
py::object make_named(const char* name, Args&&... args) {
  return py::module_::import("accel._types").attr(name)(std::forward<Args>(args)...);
}

// ---------------------------------------------------------------- deferred drops
// Python objects that the library let go of, perhaps on its own thread: dropped at the next call
// from Python.
std::shared_ptr<void> keep_alive(py::object object);
// Called first by everything that may end a submission's hold; needs the interpreter lock.
void sweep();
// Deallocation of a bound class, followed by sweep().
void dealloc_and_sweep(PyObject* self);
inline auto sweeping() {
  return py::custom_type_setup(
      [](PyHeapTypeObject* type) { type->ht_type.tp_dealloc = dealloc_and_sweep; });
}

// Releases the interpreter lock while f runs, sweeping before and after.
struct SweepAfter {
  ~SweepAfter() { sweep(); }
};
template <class F>
auto unlocked(F&& f) {
  sweep();
  SweepAfter after;
  py::gil_scoped_release release;
  return f();
}
// For waits: looks for signals with the interpreter lock held and throws what a handler raised.
void poll_signals();

// ---------------------------------------------------------------- host arrays
struct HostArray {
  py::array array;
  std::optional<DType> dtype;  // none: a type that accel does not have
  bool contiguous = false, aligned = false, writable = false;
  int64_t count = 0;
  void* data = nullptr;
  std::string type_text() const;  // "float64[4 8]"
};
HostArray host_array(py::array array);
// A numpy array from anything with the buffer protocol or __array_interface__; TypeError otherwise.
HostArray array_arg(Arg a, py::handle value);
py::dtype numpy_dtype(DType t);  // imports ml_dtypes for bf16
// An array over a buffer's own memory, which it keeps.
py::array array_over(const BufferPtr& buffer);
// The buffer's elements into `out`, or into a fresh array for None.
py::object read_into(const char* call, const BufferPtr& buffer, const py::object& out);
// A fresh one-dimensional array.
py::array empty_array(DType t, int64_t count);
// The same, aligned and in huge pages: for what is read in each step.
py::array plane_array(DType t, int64_t count);
// What keeps the array from being used in place by the port; the code and the call that makes the
// copy. A flat array is taken by its count, as a buffer is; any other has the port's own shape.
std::optional<Problem> in_place_problem(const PortDesc& port, const HostArray& a, bool written);
BufferPtr buffer_of_array(const DevicePtr& device, py::handle array, const std::string& label);
BufferPtr buffer_of_dlpack(const DevicePtr& device, py::object x, std::optional<bool> copy);
py::capsule dlpack_of(const BufferPtr& buffer, py::handle max_version, py::handle copy);

// Refuses a closed buffer, one of a closed or lost device, and use in a forked child.
// Throws lifetime for a closed buffer and layout for a packed one.
void require_open(const char* call, const BufferPtr& buffer);

// Counts a queued write for its buffer until the queue has let go of it, or this thread's own use
// of it.
struct Holding {
  enum By { queue, thread };
  explicit Holding(const BufferPtr& buffer, By by = queue) {
    if (by == thread) hold->mapped_by = std::this_thread::get_id();
    Buffer::add_hold({buffer}, hold);
    hold->in_flight.fetch_add(1);
  }
  ~Holding() {
    hold->in_flight.fetch_sub(1);
    released().notify();
  }
  std::shared_ptr<Hold> hold = std::make_shared<Hold>();
};

// Copies between host memory and a buffer once the queues that use it are done; without the
// interpreter lock.
void wait_until_unused(const BufferPtr& buffer);
// The bytes, held; throws lifetime where another thread has closed the buffer since it was looked
// at.
std::shared_ptr<void> memory_of(const char* call, const BufferPtr& buffer);

// ---------------------------------------------------------------- fences
struct PyFence {
  explicit PyFence(FencePtr f);
  PyFence(PyFence&&) = default;
  ~PyFence();  // a failed fence that nobody waited for is reported
  FencePtr fence;
};
FencePtr fence_arg(Arg a, py::handle value);
// Looks again at fences that were dropped before they were done; part of sweep().
void report_dropped_fences();

}  // namespace accel::bindings
