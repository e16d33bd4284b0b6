// What generators, gates and tests look at: the op table as data, and failing allocations.
#include "exec/testing.h"
#include "bindings/bindings.h"

namespace accel {
void bind_oracle(pybind11::module_& m);
void bind_launches(pybind11::module_& m);
}  // namespace accel

namespace accel::bindings {
namespace {

using namespace py::literals;

const char* text_of(AttrType t) {
  static const char* const names[] = {"integer", "real", "text",       "flag",
                                      "dtype",   "ints", "scalar_f32", "scalar_u32"};
  return names[int(t)];
}

const char* text_of(SlotKind k) {
  static const char* const names[] = {"tensor", "state", "int4", "quantized", "weight", "tensors"};
  return names[int(k)];
}

py::object text_or_none(const char* s) {
  return s ? py::object(py::str(s)) : py::none();
}

py::list operands_of(const OpDef& def) {
  py::list list;
  for (const OperandSpec& o : def.operands)
    list.append(py::dict("name"_a = o.name, "doc"_a = o.doc, "kind"_a = text_of(o.kind),
                         "optional"_a = o.optional, "keyword"_a = o.keyword != nullptr,
                         "positional"_a = o.positional));
  return list;
}

py::list attrs_of(const OpDef& def) {
  py::list list;
  for (const AttrSpec& a : def.attrs)
    list.append(py::dict("name"_a = a.name, "doc"_a = a.doc, "type"_a = text_of(a.type),
                         "required"_a = a.required, "positional"_a = a.positional,
                         "fallback"_a = text_or_none(a.fallback)));
  return list;
}

py::list kernels_of(const OpDef& def) {
  py::list list;
  for (const KernelRow& k : def.kernels)
    list.append(py::dict("backend"_a = name_of(k.backend), "kernel"_a = k.kernel,
                         "order"_a = k.order, "reason"_a = k.reason,
                         "batch_group"_a = text_or_none(k.batch_group)));
  return list;
}

py::list ops() {
  py::list list;
  for (const OpDef* def : op_defs())
    list.append(py::dict("name"_a = def->name, "doc"_a = def->doc, "operands"_a = operands_of(*def),
                         "attrs"_a = attrs_of(*def), "kernels"_a = kernels_of(*def),
                         "writes"_a = def->writes, "views"_a = def->views, "packs"_a = def->packs,
                         "internal"_a = def->internal, "exact"_a = def->exact,
                         "source"_a = def->source, "returns"_a = text_or_none(def->returns)));
  return list;
}

}  // namespace

void add_testing(py::module_& m) {
  m.def("_ops", ops, "The op table, one dict an operator.");
  m.def(
      "_fail_allocation", [](int64_t nth) { fail_allocation(nth); }, "nth"_a,
      "Make the library's nth allocation of host memory fail; 0 switches it off.");
  m.def(
      "_replace_shader",
      [](const std::string& file, const std::string& text) { replace_shader(file, text); },
      "file"_a, "text"_a, "Put a text in the place of a shader; empty: the built one again.");
  m.def(
      "_leave_out_barrier", [](int64_t nth) { barrier_test().left_out = nth; }, "nth"_a,
      "Programs of a GPU compiled from now on lack their nth barrier; -1: the one in front.");
  m.def(
      "_barriers_placed", [] { return barrier_test().placed.load(); },
      "Of the last program compiled for a GPU.");
  m.def(
      "_ends_seen",
      [] {
        const EndCounts& n = end_counts();
        return py::dict("dozed"_a = n.dozed.load(), "early"_a = n.early.load(),
                        "spun"_a = n.spun.load(), "slept"_a = n.slept.load(),
                        "roused"_a = n.roused.load());
      },
      "How the ends of submissions to CUDA devices were seen so far, by kind.");
  bind_oracle(m);
  bind_launches(m);
}

}  // namespace accel::bindings
