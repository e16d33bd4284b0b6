// Buffer and BufferView.
#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

// The array a caller reads into or writes from: same dtype, same count, C-contiguous.
void require_like(const char* call, const char* name, const HostArray& a, const Buffer& b) {
  const std::string is = std::string(call) + ": " + name + " is a " + a.type_text() + " array";
  if (a.dtype != b.dtype)
    throw bind_error("dtype", name,
                     is + " and must be " + name_of(b.dtype) +
                         ", as the buffer is; array.astype makes the copy");
  if (a.count != b.count)
    throw bind_error(
        "too_small", name,
        is + " and must have " + std::to_string(b.count) + " elements, as the buffer has");
  if (!a.contiguous)
    throw bind_error("layout", name,
                     is + " with strides and must be C-contiguous; "
                          "numpy.ascontiguousarray(array) makes the copy");
}

void write(const BufferPtr& b, py::object array) {
  require_open("write", b);
  const HostArray a = array_arg({"write", "array"}, array);
  require_like("write", "array", a, *b);
  if (!b->writable)
    throw bind_error(
        "read_only", b->label,
        "write: " + labelled("buffer", b->label) + " wraps read-only memory and must be writable");
  unlocked([&] {
    wait_until_unused(b);
    const std::shared_ptr<void> memory = memory_of("write", b);
    b->device()->copy_in(memory.get(), a.data, b->bytes());
  });
}

py::object access(const BufferPtr& b, py::object fn) {
  require_open("access", b);
  if (!PyCallable_Check(fn.ptr())) wrong_type({"access", "fn"}, fn, "callable");
  unlocked([&] { wait_until_unused(b); });
  const Holding mapped(b, Holding::thread);
  const std::shared_ptr<void> memory = memory_of("access", b);
  if (b->host()) return fn(array_over(b));
  py::array array = empty_array(b->dtype, b->count);
  void* const data = py::detail::array_proxy(array.ptr())->data;
  unlocked([&] { b->device()->copy_out(data, memory.get(), b->bytes()); });
  const auto take_back = [&] {
    if (b->writable) unlocked([&] { b->device()->copy_in(memory.get(), data, b->bytes()); });
  };
  py::object result;
  try {
    result = fn(array);
  } catch (...) {
    take_back();  // what was written before stands, as where the host sees the memory
    throw;
  }
  take_back();
  return result;
}

// In place where the host sees the memory; else a copy that cannot be written, since a write to it
// would reach nothing.
py::object numpy(const BufferPtr& b) {
  require_open("numpy", b);
  if (b->host()) return array_over(b);
  py::object array = read_into("numpy", b, py::none());
  array.attr("setflags")(py::arg("write") = false);
  return array;
}

py::tuple dlpack_device(const Buffer& b) {
  const DlpackPlace place = b.device()->dlpack_place();
  return py::make_tuple(place.type, place.id);
}

BufferView view(const BufferPtr& b, DType dtype, py::handle offset, py::handle count,
                const char* call) {
  return {b, dtype, int_arg({call, "offset"}, offset), int_arg({call, "count"}, count)};
}

void add_buffer(py::class_<Buffer, BufferPtr>& c) {
  using namespace py::literals;
  c.def_property_readonly("dtype", [](const Buffer& b) { return to_python(b.dtype); })
      .def_readonly("count", &Buffer::count)
      .def_property_readonly("bytes", &Buffer::bytes)
      .def_readonly("label", &Buffer::label)
      .def_readonly("layout", &Buffer::layout)
      .def_readonly("copied", &Buffer::copied)
      .def_readonly("writable", &Buffer::writable)
      .def_property_readonly("device", &Buffer::device)
      .def_property_readonly("closed", &Buffer::closed)
      .def(
          "view",
          [](const BufferPtr& b, py::object offset, py::object count) {
            return view(b, b->dtype, offset, count, "view");
          },
          "offset"_a, "count"_a, "A range of the buffer, in elements.")
      .def(
          "view_as",
          [](const BufferPtr& b, py::object dtype, py::object offset, py::object count) {
            return view(b, dtype_arg({"view_as", "dtype"}, dtype), offset, count, "view_as");
          },
          "dtype"_a, "offset"_a, "count"_a, "A range read as another dtype, in its elements.")
      .def(
          "numpy", numpy,
          "An array over the buffer's memory. It does not wait: the caller waits for the fence.\n\n"
          "Where the host does not see the memory, a copy that cannot be written; it is read once "
          "the queues that use it are done.")
      .def(
          "read",
          [](const BufferPtr& b, const py::object& out) { return read_into("read", b, out); },
          "out"_a = py::none(), "A copy, once the queues that use it are done.")
      .def("write", write, "array"_a, "Copy the array in, once the queues that use it are done.")
      .def("access", access, "fn"_a, "fn(array) with a mapping that is valid inside the call only.")
      .def("close",
           [](const BufferPtr& b) {
             unlocked([&] { b->close(); });
             sweep();
           })
      .def(
          "__dlpack__",
          [](const BufferPtr& b, py::object, py::object max_version, py::object device,
             py::object copy) {
            const py::tuple own = dlpack_device(*b);
            if (!device.is_none() && !device.equal(own))
              throw py::buffer_error("__dlpack__: the buffer is on DLPack device " +
                                     py::repr(own).cast<std::string>() +
                                     "; buffer.read() copies it to the host");
            return dlpack_of(b, max_version, copy);
          },
          py::kw_only(), "stream"_a = py::none(), "max_version"_a = py::none(),
          "dl_device"_a = py::none(), "copy"_a = py::none())
      .def("__dlpack_device__", dlpack_device)
      .def("__repr__", [](const Buffer& b) {
        return "<accel.Buffer " + std::string(name_of(b.dtype)) + "[" + std::to_string(b.count) +
               "]" + (b.label.empty() ? "" : " '" + b.label + "'") +
               (b.closed() ? " closed>" : ">");
      });
}

}  // namespace

py::object read_into(const char* call, const BufferPtr& b, const py::object& out) {
  require_open(call, b);
  HostArray a;
  if (out.is_none()) {
    a = host_array(empty_array(b->dtype, b->count));
  } else {
    if (!py::isinstance<py::array>(out)) wrong_type({call, "out"}, out, "a numpy array");
    a = host_array(out.cast<py::array>());
    require_like(call, "out", a, *b);
    if (!a.writable)
      throw bind_error("read_only", "out",
                       std::string(call) + ": out cannot be written and must be writable");
  }
  unlocked([&] {
    wait_until_unused(b);
    const std::shared_ptr<void> memory = memory_of(call, b);
    b->device()->copy_out(a.data, memory.get(), b->bytes());
  });
  return a.array;
}

void add_buffers(py::module_& m) {
  using namespace py::literals;
  py::class_<Buffer, BufferPtr> c(m, "Buffer", py::is_final(), sweeping(),
                                  py::release_gil_before_calling_cpp_dtor(),
                                  "Memory of one device, or memory of the caller used in place.");
  add_buffer(c);
  py::class_<BufferView>(m, "BufferView", py::is_final(), sweeping(),
                         py::release_gil_before_calling_cpp_dtor(),
                         "A range of a buffer: a plain value, checked at each use.")
      .def(py::init([](py::object buffer, py::object dtype, py::object offset, py::object count) {
             return view(pointer_arg<Buffer>({"BufferView", "buffer"}, buffer, "a Buffer"),
                         dtype_arg({"BufferView", "dtype"}, dtype), offset, count, "BufferView");
           }),
           "buffer"_a, "dtype"_a, "offset"_a, "count"_a)
      .def_readonly("buffer", &BufferView::buffer)
      .def_property_readonly("dtype", [](const BufferView& v) { return to_python(v.dtype); })
      .def_readonly("offset", &BufferView::offset)
      .def_readonly("count", &BufferView::count);
}

}  // namespace accel::bindings
