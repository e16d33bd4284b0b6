// numpy arrays over buffers and buffers over numpy arrays. What needs a copy is refused by the name
// of the call that makes it.
#include <cstring>

#include "bindings/bindings.h"
#include "exec/memory.h"

namespace accel::bindings {
namespace {

std::optional<DType> dtype_of(const py::dtype& t) {
  const char order = t.byteorder();
  if (order != '=' && order != '|') return std::nullopt;
  const char kind = t.kind();
  const auto size = t.itemsize();
  if (kind == 'f' && size == 4) return DType::F32;
  if (kind == 'f' && size == 2 && t.num() == 23) return DType::F16;  // numpy's half
  if (kind == 'i' && size == 4) return DType::I32;
  if (kind == 'u' && size == 4) return DType::U32;
  if (kind == 'i' && size == 1) return DType::I8;
  if (kind == 'u' && size == 1) return DType::U8;
  if (size == 2 && t.attr("name").cast<std::string>() == "bfloat16") return DType::BF16;
  return std::nullopt;
}

// Keeps a buffer's bytes for as long as an array over them lives, also after the buffer is closed.
py::capsule holder_of(std::shared_ptr<void> memory) {
  return py::capsule(new std::shared_ptr<void>(std::move(memory)),
                     [](void* p) { delete static_cast<std::shared_ptr<void>*>(p); });
}

bool has_dlpack(py::handle x) {
  return py::hasattr(x, "__dlpack__");
}

}  // namespace

std::string HostArray::type_text() const {
  const py::dtype type = array.dtype();
  const char order = type.byteorder();
  std::string text = order == '>' ? "big-endian " : order == '<' ? "little-endian " : "";
  text += py::str(type.attr("name")).cast<std::string>() + "[";
  for (py::ssize_t i = 0; i < array.ndim(); ++i)
    text += (i ? " " : "") + std::to_string(array.shape(i));
  return text + "]";
}

HostArray host_array(py::array array) {
  HostArray h;
  h.dtype = dtype_of(array.dtype());
  const int flags = py::detail::array_proxy(array.ptr())->flags;
  h.contiguous = flags & py::detail::npy_api::NPY_ARRAY_C_CONTIGUOUS_;
  h.writable = array.writeable();
  h.count = array.size();
  h.data = py::detail::array_proxy(array.ptr())->data;
  const size_t size = h.dtype ? size_t(size_of(*h.dtype)) : 1;
  h.aligned = reinterpret_cast<uintptr_t>(h.data) % size == 0;
  h.array = std::move(array);
  return h;
}

HostArray array_arg(Arg a, py::handle value) {
  if (py::isinstance<py::array>(value)) return host_array(py::reinterpret_borrow<py::array>(value));
  if (!PyObject_CheckBuffer(value.ptr()) && !py::hasattr(value, "__array_interface__"))
    wrong_type(a, value, "a numpy array, or have the buffer protocol or __array_interface__");
  // Through a memoryview, because numpy takes bytes for a text otherwise.
  py::object view = py::reinterpret_borrow<py::object>(value);
  if (PyObject_CheckBuffer(value.ptr())) {
    view = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(value.ptr()));
    if (!view) throw py::error_already_set();
  }
  return host_array(py::module_::import("numpy").attr("asarray")(view).cast<py::array>());
}

py::dtype numpy_dtype(DType t) {
  static const char* const names[] = {"float32", "float16", "", "int32", "uint32", "int8", "uint8"};
  if (t != DType::BF16) return py::dtype(names[int(t)]);
  try {
    return py::dtype::from_args(py::module_::import("ml_dtypes").attr("bfloat16"));
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_ImportError)) throw;
    throw unsupported_error(
        "numpy has no bf16 of its own; install ml_dtypes to read bf16 as arrays");
  }
}

py::array array_over(const BufferPtr& buffer) {
  py::array array(numpy_dtype(buffer->dtype), std::vector<py::ssize_t>{buffer->count},
                  std::vector<py::ssize_t>{}, buffer->host(), holder_of(buffer->memory()));
  if (!buffer->writable)
    py::detail::array_proxy(array.ptr())->flags &= ~py::detail::npy_api::NPY_ARRAY_WRITEABLE_;
  return array;
}

py::array empty_array(DType t, int64_t count) {
  return py::array(numpy_dtype(t), std::vector<py::ssize_t>{count});
}

py::array plane_array(DType t, int64_t count) {
  std::shared_ptr<void> memory = allocate_plane(count * size_of(t), "a plane of a weight");
  void* const at = memory.get();
  return py::array(numpy_dtype(t), std::vector<py::ssize_t>{count}, std::vector<py::ssize_t>{}, at,
                   holder_of(std::move(memory)));
}

// Rows of another width would be read as other values, so only a flat array may leave its shape
// open.
static bool fits_shape(const py::array& array, const Shape& shape) {
  if (array.ndim() <= 1) return true;
  if (array.ndim() != shape.rank()) return false;
  for (int i = 0; i < shape.rank(); ++i)
    if (array.shape(i) != shape[i]) return false;
  return true;
}

std::optional<Problem> in_place_problem(const PortDesc& port, const HostArray& a, bool written) {
  const std::string& name = port.name;
  const DType dtype = port.dtype;
  // Only a problem needs its words: numpy takes microseconds for the name of a type.
  const auto is = [&] { return name + " is a " + a.type_text() + " array"; };
  const auto numpy_name = [&]() -> std::string {
    if (dtype == DType::BF16) return "ml_dtypes.bfloat16";
    return "numpy." + py::str(numpy_dtype(dtype).attr("name")).cast<std::string>();
  };
  if (a.dtype != dtype)
    return Problem{"dtype", name,
                   is() + " and must be " + name_of(dtype) + "; array.astype(" + numpy_name() +
                       ") makes the copy"};
  if (py::hasattr(a.array, "mask"))
    return Problem{"layout", name,
                   is() + " with a mask and must be without one; array.filled() makes the copy"};
  if (a.count == 0)
    return Problem{"too_small", name,
                   is() + " and must have at least " + std::to_string(port.shape.elements()) +
                       " elements (" + Type{dtype, port.shape}.to_string() + ")"};
  if (!fits_shape(a.array, port.shape))
    return Problem{"layout", name,
                   is() + " and must be " + port.shape.to_string() +
                       " or flat; array.reshape(...) gives it that shape"};
  if (!a.contiguous)
    return Problem{"layout", name,
                   is() +
                       " with strides and must be C-contiguous; "
                       "numpy.ascontiguousarray(array) makes the copy"};
  if (!a.aligned)
    return Problem{"alignment", name,
                   is() + " at an odd address and must be aligned to " +
                       std::to_string(size_of(dtype)) +
                       " bytes; array.copy() makes an aligned one"};
  if (written && !a.writable)
    return Problem{"read_only", name,
                   is() +
                       " that cannot be written and must be writable; "
                       "array.copy() makes a writable one"};
  return std::nullopt;
}

BufferPtr buffer_of_array(const DevicePtr& device, py::handle value, const std::string& label) {
  if (!py::isinstance<py::array>(value) && has_dlpack(value))
    return buffer_of_dlpack(device, py::reinterpret_borrow<py::object>(value), true);
  HostArray a = array_arg({"buffer", "array"}, value);
  if (!a.dtype)
    throw bind_error(
        "dtype", "array",
        "buffer: array is " + a.type_text() + " and must be f32, f16, bf16, i32, u32, i8 or u8");
  if (a.count == 0)
    throw attr_error("buffer", "array",
                     "buffer: array is " + a.type_text() + " and must have elements");
  // Packing reads the caller's memory once more; only a strided array needs it.
  py::array packed = a.contiguous ? a.array : py::array::ensure(a.array, py::array::c_style);
  const void* data = packed.data();
  BufferPtr buffer = unlocked([&] {
    BufferPtr made = device->new_buffer(*a.dtype, a.count, label);
    device->copy_in(made->address(), data, made->bytes());
    return made;
  });
  buffer->copied = true;
  return buffer;
}

static Error closed_error(const char* call, const Buffer& buffer) {
  return bind_error(
      "lifetime", buffer.label,
      std::string(call) + ": " + labelled("buffer", buffer.label) + " is closed and must be open");
}

void require_open(const char* call, const BufferPtr& buffer) {
  buffer->device()->check_alive();
  if (buffer->closed()) throw closed_error(call, *buffer);
  // Its bytes are in a kernel's own order: as elements they would be read, or written, wrong.
  if (buffer->layout != "plain")
    throw bind_error("layout", buffer->label,
                     std::string(call) + ": " + labelled("buffer", buffer->label) +
                         " is in layout " + buffer->layout +
                         " and must be plain; plan.pack made it from a plain one");
}

void wait_until_unused(const BufferPtr& buffer) {
  buffer->wait_idle(-1, poll_signals);
}

std::shared_ptr<void> memory_of(const char* call, const BufferPtr& buffer) {
  std::shared_ptr<void> memory = buffer->memory();
  if (!memory) throw closed_error(call, *buffer);
  return memory;
}

}  // namespace accel::bindings
