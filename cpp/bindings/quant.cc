// Host quantizers over numpy arrays. The arithmetic is in cpp/runtime/quant.
#include "runtime/quant.h"

#include <cstring>
#include <span>

#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

// Flat, C-contiguous memory of one dtype; strided arrays are flattened in their index order.
py::array flat(Arg a, py::handle value, DType dtype) {
  HostArray h = array_arg(a, value);
  const std::string call = a.call, name = a.name;
  if (h.dtype != dtype)
    throw graph_error(
        {Diagnostic{ErrorKind::dtype,
                    call,
                    name,
                    call + ": " + name + " is " + h.type_text() + " and must be " + name_of(dtype),
                    {}}});
  return h.contiguous && h.aligned ? h.array : py::array(h.array.attr("copy")("C"));
}

template <class T>
std::span<const T> span_of(const py::array& a) {
  return {static_cast<const T*>(a.data()), size_t(a.size())};
}

std::vector<py::ssize_t> shape_of(const py::array& a) {
  return {a.shape(), a.shape() + a.ndim()};
}

template <class T>
py::array array_of(DType dtype, const std::vector<T>& values) {
  py::array out = empty_array(dtype, int64_t(values.size()));
  std::memcpy(out.mutable_data(), values.data(), values.size() * sizeof(T));
  return out;
}

py::object planes(const char* name, const py::tuple& fields) {
  return py::module_::import("accel.quant").attr(name)(*fields);
}

// ---------------------------------------------------------------- int8 and int4

py::object int8_quantize(py::object w) {
  const py::array a = flat({"int8_quantize", "w"}, w, DType::F32);
  const auto r = unlocked([&] { return quant::int8_quantize(span_of<float>(a)); });
  py::array quants = array_of(DType::I8, r.quants);
  return planes("Int8Planes",
                py::make_tuple(quants.reshape(shape_of(a)), array_of(DType::F16, r.scales)));
}

py::array int8_dequantize(py::object quants, py::object scales) {
  const py::array q = flat({"int8_dequantize", "quants"}, quants, DType::I8);
  const py::array s = flat({"int8_dequantize", "scales"}, scales, DType::F16);
  const auto w =
      unlocked([&] { return quant::int8_dequantize(span_of<int8_t>(q), span_of<uint16_t>(s)); });
  return array_of(DType::F32, w).reshape(shape_of(q));
}

double int8_bound(py::object x, py::object scales) {
  const py::array a = flat({"int8_bound", "x"}, x, DType::F32);
  const py::array s = flat({"int8_bound", "scales"}, scales, DType::F32);
  return unlocked([&] { return quant::int8_bound(span_of<float>(a), span_of<float>(s)); });
}

py::object int4_quantize(py::object w, py::object group) {
  const py::array a = flat({"int4_quantize", "w"}, w, DType::F32);
  const int64_t g = int_arg({"int4_quantize", "group"}, group);
  const auto r = unlocked([&] { return quant::int4_quantize(span_of<float>(a), g); });
  return planes("Int4Planes",
                py::make_tuple(array_of(DType::U32, r.codes), array_of(DType::F16, r.scales),
                               array_of(DType::F16, r.zeros), py::none(), int64_t(a.size()), g));
}

py::array int4_dequantize(py::object codes, py::object scales, py::object zeros, py::object weights,
                          py::object group) {
  const char* const call = "int4_dequantize";
  const py::array c = flat({call, "codes"}, codes, DType::U32);
  const py::array s = flat({call, "scales"}, scales, DType::F16);
  const py::array z = flat({call, "zeros"}, zeros, DType::F16);
  const int64_t n = int_arg({call, "weights"}, weights), g = int_arg({call, "group"}, group);
  return array_of(DType::F32, unlocked([&] {
                    return quant::int4_dequantize(span_of<uint32_t>(c), span_of<uint16_t>(s),
                                                  span_of<uint16_t>(z), n, g);
                  }));
}

double int4_bound(py::object x, py::object scales, py::object zeros) {
  const py::array a = flat({"int4_bound", "x"}, x, DType::F32);
  const py::array s = flat({"int4_bound", "scales"}, scales, DType::F32);
  const py::array z = flat({"int4_bound", "zeros"}, zeros, DType::F32);
  return unlocked(
      [&] { return quant::int4_bound(span_of<float>(a), span_of<float>(s), span_of<float>(z)); });
}

// ---------------------------------------------------------------- GGUF

// The format's own numbers; a name is looked up among the types that have planes.
uint32_t gguf_type(py::handle type) {
  if (is_int(type)) {
    const int64_t number = int_arg({"gguf_planes", "type"}, type);
    if (number < 0 || number > int64_t(UINT32_MAX))
      throw attr_error(
          "gguf_planes", "type",
          "gguf_planes: type is " + std::to_string(number) + " and must be in [0, 4294967295]");
    return uint32_t(number);
  }
  return quant::gguf_type_number(text_arg({"gguf_planes", "type"}, type));
}

py::object named_planes(const quant::PlaneSizes& sizes, const Shape& shape, const py::array& codes,
                        const py::object& scales, const py::object& offsets) {
  const std::vector<py::ssize_t> dims(shape.begin(), shape.end());
  if (sizes.kind == 0) return py::array(codes).reshape(dims);
  if (sizes.kind == 3)
    return planes("Int8Planes", py::make_tuple(py::array(codes).reshape(dims), scales));
  const bool affine = sizes.kind == 2;
  const py::object none = py::none();
  return planes("Int4Planes",
                py::make_tuple(codes, scales, affine ? none : offsets, affine ? offsets : none,
                               shape.elements(), sizes.group));
}

py::tuple gguf_planes(py::object type, py::object blocks, py::object shape, py::object threads) {
  const uint32_t t = gguf_type(type);
  const py::array b = flat({"gguf_planes", "blocks"}, blocks, DType::U8);
  const Shape s(ints_arg({"gguf_planes", "shape"}, shape));
  const int64_t n = int_arg({"gguf_planes", "threads"}, threads);
  if (n < 0 || n > 4096)
    throw attr_error("gguf_planes", "threads",
                     "gguf_planes: threads is " + std::to_string(n) + " and must be in [0, 4096]");
  const quant::PlaneSizes sizes = quant::gguf_plane_sizes(t, b.size(), s);
  const DType code = sizes.kind == 0 ? sizes.array_dtype : sizes.kind == 3 ? DType::I8 : DType::U32;
  py::array codes = plane_array(code, sizes.codes);
  py::object scales = py::none(), offsets = py::none();
  void *scale_data = nullptr, *offset_data = nullptr;
  const auto plane = [&](void** data) {
    py::array a = plane_array(sizes.plane_dtype, sizes.scales);
    *data = a.mutable_data();
    return a;
  };
  if (sizes.kind != 0) scales = plane(&scale_data);
  if (sizes.kind == 1 || sizes.kind == 2) offsets = plane(&offset_data);
  void* code_data = codes.mutable_data();
  const double error = unlocked([&] {
    return quant::gguf_planes(t, static_cast<const uint8_t*>(b.data()), s, sizes, code_data,
                              scale_data, offset_data, int(n));
  });
  return py::make_tuple(named_planes(sizes, s, codes, scales, offsets), error);
}

}  // namespace

void add_quant(py::module_& m) {
  using namespace py::literals;
  m.attr("INT8_BLOCK") = quant::kInt8Block;
  m.attr("INT4_GROUP") = quant::kInt4Group;
  m.def("int8_quantize", int8_quantize, "w"_a);
  m.def("int8_dequantize", int8_dequantize, "quants"_a, "scales"_a);
  m.def("int8_bound", int8_bound, "x"_a, "scales"_a);
  m.def("int4_quantize", int4_quantize, "w"_a, "group"_a);
  m.def("int4_dequantize", int4_dequantize, "codes"_a, "scales"_a, "zeros"_a, "weights"_a,
        "group"_a);
  m.def("int4_bound", int4_bound, "x"_a, "scales"_a, "zeros"_a);
  m.def("gguf_planes", gguf_planes, "type"_a, "blocks"_a, "shape"_a, "threads"_a);
}

}  // namespace accel::bindings
