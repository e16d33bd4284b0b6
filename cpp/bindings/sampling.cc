// The sampling policy: options, the counter-based stream, the composite.
#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

SamplingOptions make_options(py::object temperature, py::object top_k, py::object top_p,
                             py::object repetition, py::object presence, py::object frequency,
                             py::object exact) {
  const char* const call = "SamplingOptions";
  SamplingOptions o;
  o.temperature = real_arg({call, "temperature"}, temperature);
  o.top_k = int_arg({call, "top_k"}, top_k);
  o.top_p = real_arg({call, "top_p"}, top_p);
  o.repetition = real_arg({call, "repetition"}, repetition);
  o.presence = real_arg({call, "presence"}, presence);
  o.frequency = real_arg({call, "frequency"}, frequency);
  o.exact = bool_arg({call, "exact"}, exact);
  return o;
}

py::tuple fields(const SamplingOptions& o) {
  return py::make_tuple(o.temperature, o.top_k, o.top_p, o.repetition, o.presence, o.frequency,
                        o.exact);
}

std::string text(const SamplingOptions& o) {
  return py::str(
             "SamplingOptions(temperature={}, top_k={}, top_p={}, repetition={}, presence={}, "
             "frequency={}, exact={})")
      .format(*fields(o));
}

py::dict to_dict(const ScalarMap& scalars) {
  py::dict d;
  for (const auto& [name, value] : scalars) d[py::str(name)] = value;
  return d;
}

uint64_t u64_arg(Arg a, py::handle value) {
  if (!is_int(value)) wrong_type(a, value, "an int");
  const py::object number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
  if (!number) throw py::error_already_set();
  const unsigned long long v = PyLong_AsUnsignedLongLong(number.ptr());
  if (v != ~0ull || !PyErr_Occurred()) return v;
  PyErr_Clear();
  throw attr_error(a.call, a.name,
                   std::string(a.call) + ": " + a.name + " is " + std::string(py::str(number)) +
                       " and must be in [0, 2^64)");
}

// options=None with an operand that carries a builder is one diagnostic there.
Tensor sample(py::object logits, py::object draws, py::object history, py::object counts,
              py::object options, py::object prefix) {
  const Tensor l = tensor_arg({"sample", "logits"}, logits);
  const Tensor d = tensor_arg({"sample", "draws"}, draws);
  const State h = state_arg({"sample", "history"}, history);
  const State c = state_arg({"sample", "counts"}, counts);
  const std::string p = text_or_empty({"sample", "prefix"}, prefix);
  const Site site = caller_site();
  if (options.is_none() && !l.null()) {
    Builder::refuse(l.builder(), {ErrorKind::attr, "sample", "options",
                                  "sample: options is None and must be SamplingOptions", site});
    return Tensor::poison(l.builder());
  }
  const char* const must = "SamplingOptions";
  const SamplingOptions o = options.is_none()
                                ? SamplingOptions()
                                : object_arg<SamplingOptions>({"sample", "options"}, options, must);
  return tensor::sample(l, d, h, c, o, p, site);
}

void add_options(py::module_& m) {
  using namespace py::literals;
  py::class_<SamplingOptions>(m, "SamplingOptions", py::is_final(),
                              "How one token is drawn; greedy by default. 0 switches a stage off.")
      .def(py::init(&make_options), "temperature"_a = 0, "top_k"_a = 0, "top_p"_a = 0,
           "repetition"_a = 0, "presence"_a = 0, "frequency"_a = 0, "exact"_a = false)
      .def_readonly("temperature", &SamplingOptions::temperature)
      .def_readonly("top_k", &SamplingOptions::top_k)
      .def_readonly("top_p", &SamplingOptions::top_p)
      .def_readonly("repetition", &SamplingOptions::repetition)
      .def_readonly("presence", &SamplingOptions::presence)
      .def_readonly("frequency", &SamplingOptions::frequency)
      .def_readonly("exact", &SamplingOptions::exact)
      .def("greedy", &SamplingOptions::greedy)
      .def("penalised", &SamplingOptions::penalised)
      .def("validate", &SamplingOptions::validate, "Raise AttrError for the first bad field.")
      .def(
          "scalars",
          [](const SamplingOptions& o, py::object prefix, py::object n, py::object cap) {
            const std::string p = text_or_empty({"scalars", "prefix"}, prefix);
            const int64_t count = int_arg({"scalars", "n"}, n);
            return to_dict(o.scalars(p, count, int_arg({"scalars", "history_cap"}, cap)));
          },
          "prefix"_a, "n"_a = 0, "history_cap"_a = 0, "The scalars of a submission, by name.")
      .def(
          "__eq__",
          [](const SamplingOptions& a, const SamplingOptions& b) {
            return fields(a).equal(fields(b));
          },
          py::is_operator())
      .def("__hash__", [](const SamplingOptions& o) { return py::hash(fields(o)); })
      .def("__repr__", text);
}

}  // namespace

void add_sampling(py::module_& m) {
  using namespace py::literals;
  add_options(m);
  m.attr("MIN_TEMPERATURE") = double(kMinTemperature);
  m.attr("TOP_MAX_ROUNDS") = kTopMaxRounds;
  py::class_<Stream>(m, "Stream", py::is_final(),
                     "Uniform draws as a pure function of seed and step.")
      .def(py::init([](py::object seed) {
             return Stream{u64_arg({"Stream", "seed"}, seed)};
           }),
           "seed"_a)
      .def_readonly("seed", &Stream::seed)
      .def(
          "draw",
          [](const Stream& s, py::object step) {
            return double(s.draw(u64_arg({"draw", "step"}, step)));
          },
          "step"_a, "An f32 in [0, 0.99999994]; step is the token's index.")
      .def(
          "__eq__", [](const Stream& a, const Stream& b) { return a.seed == b.seed; },
          py::is_operator())
      .def("__hash__", [](const Stream& s) { return py::hash(py::int_(s.seed)); })
      .def("__repr__", [](const Stream& s) { return "Stream(" + std::to_string(s.seed) + ")"; });
  m.def(
      "derive",
      [](py::object root, py::object seq) {
        return derive(u64_arg({"derive", "root"}, root), u64_arg({"derive", "seq"}, seq));
      },
      "root"_a, "seq"_a, "The stream of one sequence.");
  m.def(
      "declare_sampling_scalars",
      [](py::object b, py::object options, py::object prefix) {
        const char* const call = "declare_sampling_scalars";
        Builder& builder = object_arg<Builder>({call, "b"}, b, "a Builder");
        const auto& o = object_arg<SamplingOptions>({call, "options"}, options, "SamplingOptions");
        declare_sampling_scalars(builder, o, text_or_empty({call, "prefix"}, prefix),
                                 caller_site());
      },
      "b"_a, "options"_a, "prefix"_a, "Declare exactly the scalars of options.scalars(prefix).");
  m.def("sample", sample, "logits"_a, "draws"_a, "history"_a, "counts"_a, "options"_a, "prefix"_a);
}

}  // namespace accel::bindings
