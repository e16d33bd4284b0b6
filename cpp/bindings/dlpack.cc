// DLPack in and out, versioned and unversioned. The structs follow the exchange format's binary
// layout.
#include <cstring>

#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

struct DlDevice {
  int32_t type, id;
};
struct DlType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlType dtype;
  int64_t* shape;    // elements
  int64_t* strides;  // elements; null when compact
  uint64_t byte_offset;
};
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};
struct DlVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(DlVersioned*);
  uint64_t flags;
  DlTensor tensor;
};
constexpr int32_t kCpu = 1;
constexpr uint64_t kReadOnly = 1, kCopied = 2;
enum : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4 };
const char* const kPlainName = "dltensor";
const char* const kVersionedName = "dltensor_versioned";

DlType type_of(DType t) {
  const uint8_t bits = uint8_t(size_of(t) * 8);
  switch (t) {
    case DType::F32:
    case DType::F16:
      return {kFloat, bits, 1};
    case DType::BF16:
      return {kBfloat, bits, 1};
    case DType::I32:
    case DType::I8:
      return {kInt, bits, 1};
    case DType::U32:
    case DType::U8:
      return {kUint, bits, 1};
  }
  return {};
}

DType dtype_of(const DlType& type) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DlType t = type_of(DType(i));
    if (t.code == type.code && t.bits == type.bits && type.lanes == 1) return DType(i);
  }
  throw bind_error("dtype", "x",
                   "from_dlpack: x has DLPack type code " + std::to_string(type.code) + " of " +
                       std::to_string(type.bits) +
                       " bits and must be f32, "
                       "f16, bf16, i32, u32, i8 or u8");
}

// ---------------------------------------------------------------- in

// The producer's tensor with what frees it, whichever of the two forms it came in.
struct Import {
  DlTensor tensor{};
  bool read_only = false, copied = false;
  std::shared_ptr<void> owner;
};

// `stream`: before which the producer orders its work, or -1.
Import import_of(py::object x, int64_t stream) {
  py::object capsule;
  py::dict options;
  if (stream >= 0) options["stream"] = stream;
  try {
    capsule = x.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0), **options);
  } catch (py::error_already_set& e) {
    if (!e.matches(PyExc_TypeError)) throw;  // a producer of before versions
    capsule = x.attr("__dlpack__")(**options);
  }
  Import in;
  if (PyCapsule_IsValid(capsule.ptr(), kVersionedName)) {
    auto* m = static_cast<DlVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersionedName));
    if (m->major != 1)
      throw bind_error(
          "layout", "x",
          "from_dlpack: x has DLPack version " + std::to_string(m->major) + " and must have 1");
    in.tensor = m->tensor;
    in.read_only = m->flags & kReadOnly;
    in.copied = m->flags & kCopied;
  } else if (PyCapsule_IsValid(capsule.ptr(), kPlainName)) {
    in.tensor = static_cast<DlManaged*>(PyCapsule_GetPointer(capsule.ptr(), kPlainName))->tensor;
  } else {
    wrong_type({"from_dlpack", "x.__dlpack__()"}, capsule, "a DLPack capsule");
  }
  // An unused capsule frees its tensor when dropped, so keeping it keeps the memory.
  in.owner = keep_alive(py::make_tuple(x, capsule));
  return in;
}

// The number of elements; refuses what the producer cannot mean.
int64_t checked_count(const DlTensor& t) {
  int64_t n = 1;
  bool fits = t.ndim >= 0;
  for (int i = 0; fits && i < t.ndim; ++i)
    fits = t.shape[i] >= 0 && !__builtin_mul_overflow(n, t.shape[i], &n);
  if (!fits)
    throw bind_error("layout", "x",
                     "from_dlpack: x has an extent below 0 or more than 2^63-1 elements and must "
                     "have the shape of a tensor");
  if (n == 0)
    throw attr_error("from_dlpack", "x", "from_dlpack: x is empty and must have elements");
  return n;
}

// Two ints, as DLPack writes versions and devices.
std::pair<int64_t, int64_t> pair_arg(Arg a, py::handle value) {
  const bool sequence = PyTuple_Check(value.ptr()) || PyList_Check(value.ptr());
  if (!sequence || py::len(value) != 2) wrong_type(a, value, "a tuple of two ints");
  const std::vector<int64_t> ints = ints_arg(a, value);
  return {ints[0], ints[1]};
}

bool compact(const DlTensor& t) {
  int64_t n = 1;
  for (int i = t.ndim - 1; t.strides && i >= 0; --i) {
    if (t.shape[i] != 1 && t.strides[i] != n) return false;
    n *= t.shape[i];
  }
  return true;
}

const char* bytes_of(const DlTensor& t) {
  return static_cast<const char*>(t.data) + t.byte_offset;
}

// Walks the index space in row-major order.
void copy_strided(char* out, const DlTensor& t, int64_t count, int64_t size) {
  std::vector<int64_t> index(size_t(t.ndim), 0);
  for (int64_t n = count; n > 0; --n, out += size) {
    int64_t at = 0;
    for (int i = 0; i < t.ndim; ++i) at += index[size_t(i)] * t.strides[i];
    std::memcpy(out, bytes_of(t) + at * size, size_t(size));
    for (int i = t.ndim - 1; i >= 0 && ++index[size_t(i)] == t.shape[i]; --i) index[size_t(i)] = 0;
  }
}

// Where x is: in the device's own memory, or in the host's.
bool is_own(const Device& device, py::object x) {
  const py::object given = x.attr("__dlpack_device__")();
  const auto where = pair_arg({"from_dlpack", "x.__dlpack_device__()"}, given);
  const DlpackPlace own = device.dlpack_place();
  if (where.first == own.type && where.second == own.id) return true;
  // The host's memory has one place, whatever number a producer gives it.
  if (where.first == kCpu) return own.type == kCpu;
  throw bind_error(
      "foreign", "x",
      "from_dlpack: x is on DLPack device type " + std::to_string(where.first) +
          " and must be in host memory, type 1" +
          (own.type == kCpu ? std::string()
                            : ", or in the device's own, type " + std::to_string(own.type) +
                                  " with id " + std::to_string(own.id)));
}

// ---------------------------------------------------------------- out

// Owns the bytes, so that they outlive a close of the buffer.
struct Export {
  std::shared_ptr<void> memory;
  int64_t shape[1];
  int64_t strides[1] = {1};
};

void fill(DlTensor& t, const BufferPtr& buffer, Export* e) {
  const DlpackPlace place = buffer->device()->dlpack_place();
  t.data = e->memory.get();
  t.device = {place.type, place.id};
  t.ndim = 1;
  t.dtype = type_of(buffer->dtype);
  t.shape = e->shape;
  t.strides = e->strides;
  t.byte_offset = 0;
}

// Called by the consumer, on any thread, without the interpreter lock.
template <class M>
void free_export(M* m) {
  delete static_cast<Export*>(m->context);
  delete m;
}

// A consumer renames the capsule it takes; one that nobody took frees its tensor.
template <class M>
void free_capsule(PyObject* capsule) {
  const char* name = std::is_same_v<M, DlVersioned> ? kVersionedName : kPlainName;
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* m = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  m->deleter(m);
}

template <class M>
py::capsule make_capsule(M* m, const BufferPtr& buffer, std::shared_ptr<void> memory,
                         const char* name) {
  auto* e = new Export{std::move(memory), {buffer->count}};
  m->context = e;
  m->deleter = free_export<M>;
  fill(m->tensor, buffer, e);
  PyObject* capsule = PyCapsule_New(m, name, free_capsule<M>);
  if (!capsule) {
    m->deleter(m);
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::capsule>(capsule);
}

}  // namespace

BufferPtr buffer_of_dlpack(const DevicePtr& device, py::object x, std::optional<bool> copy) {
  if (!py::hasattr(x, "__dlpack__") || !py::hasattr(x, "__dlpack_device__"))
    wrong_type({"from_dlpack", "x"}, x, "an object with __dlpack__ and __dlpack_device__");
  const bool own = is_own(*device, x);
  const bool on_gpu = own && !device->host_visible();
  const int64_t stream = on_gpu ? unlocked([&] { return device->import_stream(); }) : -1;
  Import in = import_of(x, stream);
  const DType dtype = dtype_of(in.tensor.dtype);
  const int64_t count = checked_count(in.tensor);
  if (in.copied && copy == false)
    throw bind_error("layout", "x",
                     "from_dlpack: x was copied by its producer and must be its own memory with "
                     "copy=False");
  const int64_t size = size_of(dtype);
  const bool aligned = reinterpret_cast<uintptr_t>(bytes_of(in.tensor)) % size_t(size) == 0;
  const bool in_place = on_gpu || (own && device->wraps());
  if (!in_place && copy == false)
    throw bind_error("foreign", "x",
                     "from_dlpack: x is in memory of the host and must be the device's own with "
                     "copy=False; from_dlpack(x, copy=True) makes the copy");
  const bool fits = in_place && compact(in.tensor) && aligned;
  if (on_gpu && !compact(in.tensor))
    throw bind_error("layout", "x",
                     "from_dlpack: x is strided on the GPU and must be compact; x.contiguous() or "
                     "ascontiguousarray(x) of its own library makes the copy");
  if (!fits && copy == false)
    throw bind_error(aligned ? "layout" : "alignment", "x",
                     std::string("from_dlpack: x is ") + (aligned ? "strided" : "misaligned") +
                         " and must be a compact aligned tensor with copy=False; "
                         "from_dlpack(x, copy=True) makes the copy");
  return unlocked([&] {
    if (on_gpu) device->finish_import();
    if (fits && copy != true) {
      void* data = const_cast<char*>(bytes_of(in.tensor));
      BufferPtr wrapped = device->wrap(data, dtype, count, !in.read_only, in.owner, "dlpack");
      wrapped->copied = in.copied;
      return wrapped;
    }
    BufferPtr made = device->new_buffer(dtype, count, "dlpack");
    if (on_gpu) {
      device->copy_within(made->address(), bytes_of(in.tensor), made->bytes());
    } else if (compact(in.tensor)) {
      device->copy_in(made->address(), bytes_of(in.tensor), made->bytes());
    } else {
      std::vector<char> packed(size_t(made->bytes()));
      copy_strided(packed.data(), in.tensor, count, size);
      device->copy_in(made->address(), packed.data(), made->bytes());
    }
    made->copied = true;
    return made;
  });
}

py::capsule dlpack_of(const BufferPtr& buffer, py::handle max_version, py::handle copy) {
  require_open("__dlpack__", buffer);
  // On a GPU the consumer's stream knows nothing of our queues.
  if (!buffer->host()) unlocked([&] { wait_until_unused(buffer); });
  if (!copy.is_none() && bool_arg({"__dlpack__", "copy"}, copy))
    throw py::buffer_error(
        "__dlpack__: copy is True and must be None or False; "
        "buffer.read() makes a copy");
  std::shared_ptr<void> memory = memory_of("__dlpack__", buffer);
  const bool versioned =
      !max_version.is_none() && pair_arg({"__dlpack__", "max_version"}, max_version).first >= 1;
  if (versioned) {
    auto* m = new DlVersioned{1, 0, nullptr, nullptr, buffer->writable ? 0 : kReadOnly, {}};
    return make_capsule(m, buffer, std::move(memory), kVersionedName);
  }
  if (!buffer->writable)
    throw py::buffer_error(
        "__dlpack__: the buffer is read only, which DLPack before 1.0 cannot say; "
        "ask with max_version=(1, 0)");
  return make_capsule(new DlManaged{}, buffer, std::move(memory), kPlainName);
}

}  // namespace accel::bindings
