// Opening and describing devices.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "runtime/ceilings.h"
#include "runtime/open_best.h"

namespace accel::bindings {
namespace {

py::object to_python(const DeviceInfo& info) {
  py::dict limits;
  for (const auto& [name, value] : info.limits) limits[py::str(name)] = value;
  const py::bytes id(reinterpret_cast<const char*>(info.id.data()), info.id.size());
  return make_named("DeviceInfo", id, info.backend, info.name, info.vendor, info.software,
                    info.level, info.isa, info.threads, py::tuple(py::cast(info.capabilities)),
                    limits);
}

py::tuple to_python(const std::vector<ProbeNote>& notes) {
  py::list list;
  for (const ProbeNote& n : notes)
    list.append(make_named("ProbeNote", n.backend, n.stage, n.error));
  return py::tuple(list);
}

int64_t in_range(Arg a, py::handle value, int64_t low, int64_t high) {
  const int64_t v = int_arg(a, value);
  if (v < low || v > high)
    throw attr_error(a.call, a.name,
                     std::string(a.call) + ": " + a.name + " is " + std::to_string(v) +
                         " and must be in [" + std::to_string(low) + ", " + std::to_string(high) +
                         "]");
  return v;
}

DevicePtr open_cpu_device(py::object threads, py::object isa, py::object check,
                          py::object debug_fill, py::object lose_at) {
  CpuOptions options;
  options.threads = int(in_range({"open_cpu", "threads"}, threads, 0, 1024));
  options.isa = text_or_empty({"open_cpu", "isa"}, isa);
  if (!isa.is_none() && options.isa.empty())
    throw attr_error("open_cpu", "isa",
                     "open_cpu: isa is '' and must be base, avx2, avx512 or neon");
  options.check = bool_arg({"open_cpu", "check"}, check);
  if (!debug_fill.is_none())
    options.debug_fill = int(in_range({"open_cpu", "debug_fill"}, debug_fill, 0, 255));
  if (!lose_at.is_none())
    options.lose_at = in_range({"open_cpu", "lose_at"}, lose_at, 1, INT64_MAX);
  return unlocked([&] { return open_cpu(options); });
}

DevicePtr open_metal_device(py::object index, py::object check, py::object debug_fill,
                            py::object lose_at, py::object cache, py::object plain) {
  MetalOptions options;
  options.index = int(in_range({"open_metal", "index"}, index, 0, 1024));
  options.check = bool_arg({"open_metal", "check"}, check);
  options.plain = bool_arg({"open_metal", "plain"}, plain);
  options.cache = text_or_empty({"open_metal", "cache"}, cache);
  if (!debug_fill.is_none())
    options.debug_fill = int(in_range({"open_metal", "debug_fill"}, debug_fill, 0, 255));
  if (!lose_at.is_none())
    options.lose_at = in_range({"open_metal", "lose_at"}, lose_at, 1, INT64_MAX);
  return unlocked([&] { return open_metal(options); });
}

DevicePtr open_cuda_device(py::object index, py::object check, py::object debug_fill,
                           py::object lose_at, py::object serial, py::object overlap,
                           py::object matrix) {
  CudaOptions options;
  options.index = int(in_range({"open_cuda", "index"}, index, 0, 1024));
  options.check = bool_arg({"open_cuda", "check"}, check);
  options.serial = bool_arg({"open_cuda", "serial"}, serial);
  options.overlap = bool_arg({"open_cuda", "overlap"}, overlap);
  options.matrix = bool_arg({"open_cuda", "matrix"}, matrix);
  if (!debug_fill.is_none())
    options.debug_fill = int(in_range({"open_cuda", "debug_fill"}, debug_fill, 0, 255));
  if (!lose_at.is_none())
    options.lose_at = in_range({"open_cuda", "lose_at"}, lose_at, 1, INT64_MAX);
  return unlocked([&] { return open_cuda(options); });
}

std::vector<std::string> texts(Arg a, py::handle value) {
  std::vector<std::string> result;
  const py::object items = items_arg(a, value, "a sequence of str");
  for (py::handle item : py::reinterpret_borrow<py::sequence>(items))
    result.push_back(text_arg(a, item));
  return result;
}

// {"name": (">=", value)} or {"name": ("<=", value)}.
std::vector<LimitRule> limit_rules(py::handle value) {
  std::vector<LimitRule> rules;
  const Arg a{"open_best", "limits"};
  const char* const must = "a dict of name to ('>=', int) or ('<=', int)";
  if (value.is_none()) return rules;
  if (!PyDict_Check(value.ptr())) wrong_type(a, value, must);
  for (auto item : py::reinterpret_borrow<py::dict>(value)) {
    if (!PyTuple_Check(item.second.ptr()) || py::len(item.second) != 2)
      wrong_type(a, item.second, must);
    const auto pair = py::reinterpret_borrow<py::tuple>(item.second);
    const std::string sign = text_arg(a, pair[0]);
    if (sign != ">=" && sign != "<=")
      throw attr_error(
          "open_best", "limits",
          "open_best: limits holds the comparison '" + sign + "' and must hold '>=' or '<='");
    rules.push_back({text_arg(a, item.first), sign == ">=", int_arg(a, pair[1])});
  }
  return rules;
}

DevicePtr open_best_device(py::object prefer, py::object allow_cpu, py::object allow_software,
                           py::object require, py::object limits) {
  BestOptions options;
  options.prefer = texts({"open_best", "prefer"}, prefer);
  options.allow_cpu = bool_arg({"open_best", "allow_cpu"}, allow_cpu);
  options.allow_software = bool_arg({"open_best", "allow_software"}, allow_software);
  options.require = texts({"open_best", "require"}, require);
  options.limits = limit_rules(limits);
  return unlocked([&] { return open_best(options); });
}

DevicePtr open_by_id(py::object id) {
  if (!PyBytes_Check(id.ptr())) wrong_type({"open_device", "id"}, id, "the bytes of DeviceInfo.id");
  const std::string bytes = id.cast<std::string>();
  std::array<uint8_t, 16> token{};
  if (bytes.size() != token.size())
    throw attr_error(
        "open_device", "id",
        "open_device: id is " + std::to_string(bytes.size()) + " bytes and must be 16");
  std::copy(bytes.begin(), bytes.end(), token.begin());
  return unlocked([&] { return open_device(token); });
}

py::object new_buffer(Device& d, py::object dtype, py::object count, py::object label) {
  const DType t = dtype_arg({"new_buffer", "dtype"}, dtype);
  const int64_t n = int_arg({"new_buffer", "count"}, count);
  const std::string name = text_or_empty({"new_buffer", "label"}, label);
  return py::cast(unlocked([&] { return d.new_buffer(t, n, name); }));
}

py::dict cpu_ceilings(py::object threads, py::object milliseconds, py::object mib) {
  using namespace py::literals;
  const int64_t t = in_range({"cpu_ceilings", "threads"}, threads, 1, 4096);
  const int64_t ms = in_range({"cpu_ceilings", "milliseconds"}, milliseconds, 1, 60000);
  const int64_t size = in_range({"cpu_ceilings", "mib"}, mib, 1, 1 << 20);
  const Ceilings c =
      unlocked([&] { return measure_ceilings(int(t), double(ms) / 1e3, size_t(size) << 20); });
  return py::dict("level"_a = c.level, "read_gb_s"_a = c.read_gb_s, "fma_gop_s"_a = c.fma_gop_s,
                  "int8_gop_s"_a = c.int8_gop_s, "int8_unit"_a = c.int8_unit);
}

void add_opening(py::module_& m) {
  using namespace py::literals;
  m.def(
      "enumerate_devices",
      [] {
        const Enumeration all = unlocked([] { return enumerate_devices(); });
        py::list devices;
        for (const DeviceInfo& info : all.devices) devices.append(to_python(info));
        return make_named("Enumeration", py::tuple(devices), to_python(all.notes));
      },
      "Devices of this machine, and why a backend that was probed gave none.");
  m.def("cpu_ceilings", cpu_ceilings, "threads"_a, "milliseconds"_a, "mib"_a,
        "Measure what this CPU reads (GB/s) and multiplies (Gop/s), `mib` MiB of memory a thread.");
  m.def("open_device", open_by_id, "id"_a, "Open exactly the adapter with this id.");
  m.def(
      "open_cpu", open_cpu_device, "threads"_a = 0, "isa"_a = py::none(), "check"_a = false,
      "debug_fill"_a = py::none(), "lose_at"_a = py::none(),
      "Open the CPU. threads=0 is all cores; isa forces a kernel table: base, avx2, avx512, neon. "
      "check=True tests ids, lengths, counts and draws before each node and fails the fence.");
  m.def("open_metal", open_metal_device, "index"_a = 0, "check"_a = false,
        "debug_fill"_a = py::none(), "lose_at"_a = py::none(), "cache"_a = py::none(),
        "plain"_a = false,
        "Open a Metal device, by its place in enumerate_devices(). cache is a folder for compiled "
        "pipelines; plain=True uses no exchange inside SIMD groups; the rest is as in open_cpu.");
  m.def("open_cuda", open_cuda_device, "index"_a = 0, "check"_a = false,
        "debug_fill"_a = py::none(), "lose_at"_a = py::none(), "serial"_a = false,
        "overlap"_a = true, "matrix"_a = false,
        "Open a GPU of NVIDIA's, by its place in enumerate_devices(). serial=True lets each launch "
        "wait for the one before it; overlap=False lets none begin before those that it waits for "
        "have ended; matrix=True runs products by f16 and bf16 weights in 'nk' on matrix units, in "
        "an order of their own (matrix16); the rest is as in open_cpu.");
  m.def(
      "open_best", open_best_device, "prefer"_a = py::make_tuple("metal", "cuda", "cpu"),
      "allow_cpu"_a = true, "allow_software"_a = false, "require"_a = py::tuple(),
      "limits"_a = py::none(),
      "Open the first device that the policy accepts; its passed_over says why not a better-liked "
      "one.\n\nlimits is a dict of name to ('>=', int) or ('<=', int).");
}

}  // namespace

static void add_transient_pool(py::module_& m) {
  py::class_<TransientPool, TransientPoolPtr>(
      m, "TransientPool", py::is_final(), sweeping(), py::release_gil_before_calling_cpp_dtor(),
      "Memory that the transients of several plans share, as large as the largest needs; made by\n"
      "device.new_transient_pool and given to compile. Two of its graphs never execute at once.")
      .def_property_readonly("label", &TransientPool::label)
      .def_property_readonly("device", &TransientPool::device)
      .def_property_readonly(
          "bytes", [](const TransientPool& p) { return unlocked([&] { return p.bytes(); }); })
      .def_property_readonly("graphs", &TransientPool::graphs, "Open graph instances that use it.")
      .def_property_readonly("closed", &TransientPool::closed)
      .def("close", [](TransientPool& p) { unlocked([&] { p.close(); }); });
}

void add_devices(py::module_& m) {
  using namespace py::literals;
  add_transient_pool(m);
  py::class_<Device, DevicePtr>(m, "Device", py::is_final(), sweeping(),
                                py::release_gil_before_calling_cpp_dtor(),
                                "An open device; it makes buffers and queues.")
      .def_property_readonly("info", [](const Device& d) { return to_python(d.info()); })
      .def_property_readonly("passed_over",
                             [](const Device& d) { return to_python(d.passed_over); })
      .def_property_readonly(
          "notes", [](const Device& d) { return to_python(unlocked([&] { return d.notes(); })); },
          "What went otherwise than asked, without harm.")
      .def_property_readonly("queue",
                             [](Device& d) { return unlocked([&] { return d.default_queue(); }); })
      .def(
          "new_queue",
          [](Device& d, py::object label) {
            const std::string name = text_or_empty({"new_queue", "label"}, label);
            return unlocked([&] { return d.new_queue(name); });
          },
          "label"_a = py::none())
      .def(
          "new_transient_pool",
          [](Device& d, py::object label) {
            const std::string name = text_or_empty({"new_transient_pool", "label"}, label);
            return unlocked([&] { return d.new_transient_pool(name); });
          },
          "label"_a = py::none(), "Memory that several plans lend for their transients.")
      .def("new_buffer", new_buffer, "dtype"_a, "count"_a, "label"_a = py::none(),
           "A zeroed buffer of count elements.")
      .def(
          "buffer",
          [](Device& d, py::object array, py::object label) {
            return buffer_of_array(d.shared_from_this(), array,
                                   text_or_empty({"buffer", "label"}, label));
          },
          "array"_a, "label"_a = py::none(), "A buffer with a copy of the array.")
      .def(
          "from_dlpack",
          [](Device& d, py::object x, py::object copy) {
            std::optional<bool> wanted;
            if (!copy.is_none()) wanted = bool_arg({"from_dlpack", "copy"}, copy);
            return buffer_of_dlpack(d.shared_from_this(), x, wanted);
          },
          "x"_a, "copy"_a = py::none(), "A buffer over x's own memory where the device can use it.")
      .def_property_readonly("closed", &Device::closed)
      .def("close", [](Device& d) { unlocked([&] { d.close(); }); })
      .def("__repr__", [](const Device& d) {
        return "<accel.Device " + d.info().backend + " '" + d.info().name + "'>";
      });
  add_opening(m);
}

}  // namespace accel::bindings
