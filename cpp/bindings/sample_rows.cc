// sample_rows and the policy a row: bundles of tensors and states.
#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

template <class Value>
py::object or_none(const Value& v) {
  return v.null() ? py::none() : py::cast(v);
}

RowPenalties make_penalties(py::object history, py::object counts, py::object filled,
                            py::object repetition, py::object presence, py::object frequency) {
  const char* const call = "RowPenalties";
  return {state_arg({call, "history"}, history),    state_arg({call, "counts"}, counts),
          tensor_arg({call, "filled"}, filled),     tensor_arg({call, "repetition"}, repetition),
          tensor_arg({call, "presence"}, presence), tensor_arg({call, "frequency"}, frequency)};
}

RowSampling make_policy(py::object factor, py::object top_k, py::object top_p, py::object bias,
                        py::object penalties) {
  const char* const call = "RowSampling";
  RowSampling s;
  s.factor = tensor_arg({call, "factor"}, factor);
  s.top_k = tensor_arg({call, "top_k"}, top_k);
  s.top_p = tensor_arg({call, "top_p"}, top_p);
  if (!bias.is_none()) s.bias = object_arg<RowBias>({call, "bias"}, bias, "a RowBias");
  if (!penalties.is_none())
    s.penalties = object_arg<RowPenalties>({call, "penalties"}, penalties, "a RowPenalties");
  return s;
}

// policy=None with an operand that carries a builder is one diagnostic there.
Tensor sample_rows(py::object logits, py::object draws, py::object policy) {
  const Tensor l = tensor_arg({"sample_rows", "logits"}, logits);
  const Tensor d = tensor_arg({"sample_rows", "draws"}, draws);
  const Site site = caller_site();
  const BuilderPtr b = l.builder() ? l.builder() : d.builder();
  if (policy.is_none() && b && !l.null() && !d.null()) {
    Builder::refuse(b, {ErrorKind::attr, "sample_rows", "policy",
                        "sample_rows: policy is None and must be a RowSampling", site});
    return Tensor::poison(b);
  }
  const RowSampling s = policy.is_none() ? RowSampling()
                                         : object_arg<RowSampling>({"sample_rows", "policy"},
                                                                   policy, "a RowSampling");
  return tensor::sample_rows(l, d, s, site);
}

void add_policy(py::module_& m) {
  using namespace py::literals;
  py::class_<RowBias>(m, "RowBias", py::is_final(), "Values added to chosen logits of each row.")
      .def(py::init([](py::object ids, py::object values) {
             return RowBias{tensor_arg({"RowBias", "ids"}, ids),
                            tensor_arg({"RowBias", "values"}, values)};
           }),
           "ids"_a, "values"_a)
      .def_property_readonly("ids", [](const RowBias& v) { return or_none(v.ids); })
      .def_property_readonly("values", [](const RowBias& v) { return or_none(v.values); });
  using P = RowPenalties;
  py::class_<P>(m, "RowPenalties", py::is_final(), "Penalties of each row over its own history.")
      .def(py::init(&make_penalties), "history"_a, "counts"_a, "filled"_a, "repetition"_a,
           "presence"_a, "frequency"_a)
      .def_property_readonly("history", [](const P& v) { return or_none(v.history); })
      .def_property_readonly("counts", [](const P& v) { return or_none(v.counts); })
      .def_property_readonly("filled", [](const P& v) { return or_none(v.filled); })
      .def_property_readonly("repetition", [](const P& v) { return or_none(v.repetition); })
      .def_property_readonly("presence", [](const P& v) { return or_none(v.presence); })
      .def_property_readonly("frequency", [](const P& v) { return or_none(v.frequency); });
  using S = RowSampling;
  py::class_<S>(m, "RowSampling", py::is_final(),
                "One sampling policy a row, as device data; a field left out switches its stage "
                "off.")
      .def(py::init(&make_policy), "factor"_a, "top_k"_a = py::none(), "top_p"_a = py::none(),
           "bias"_a = py::none(), "penalties"_a = py::none())
      .def_property_readonly("factor", [](const S& v) { return or_none(v.factor); })
      .def_property_readonly("top_k", [](const S& v) { return or_none(v.top_k); })
      .def_property_readonly("top_p", [](const S& v) { return or_none(v.top_p); })
      .def_property_readonly("bias",
                             [](const S& v) { return py::cast(v.bias ? &*v.bias : nullptr); })
      .def_property_readonly(
          "penalties", [](const S& v) { return py::cast(v.penalties ? &*v.penalties : nullptr); });
}

}  // namespace

void add_sample_rows(py::module_& m) {
  using namespace py::literals;
  add_policy(m);
  m.def("sample_rows", sample_rows, "logits"_a, "draws"_a, "policy"_a);
}

}  // namespace accel::bindings
