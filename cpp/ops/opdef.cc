// The registry of definitions, slot expansion, and the walk that selects a kernel.
#include "ops/opdef.h"

#include <cstdlib>

namespace accel {

#define OP(n) extern const OpDef def_##n;
#include "ops/list.inc"
#undef OP

const std::vector<const OpDef*>& op_defs() {
  static const std::vector<const OpDef*> all = {
#define OP(n) &def_##n,
#include "ops/list.inc"
#undef OP
  };
  return all;
}

const OpDef& op_def(Op op) {
  return *op_defs()[size_t(op)];
}

const OpDef* find_op(std::string_view name) {
  for (const OpDef* def : op_defs())
    if (def->name == name) return def;
  return nullptr;
}

const char* name_of(Backend b) {
  static const char* const names[] = {"cpu", "metal", "cuda"};
  return names[int(b)];
}

std::vector<Slot> slots_of(const OpDef& def, size_t total) {
  std::vector<Slot> slots;
  for (int i = 0; i < int(def.operands.size()); ++i) {
    const OperandSpec& spec = def.operands[size_t(i)];
    const std::string name = spec.name;
    switch (spec.kind) {
      case SlotKind::tensor:
      case SlotKind::state:
        slots.push_back({name, i, spec.optional});
        break;
      case SlotKind::int4:
        slots.push_back({name + ".codes", i, false});
        slots.push_back({name + ".scales", i, false});
        slots.push_back({name + ".zeros", i, true});
        slots.push_back({name + ".biases", i, true});
        break;
      case SlotKind::quantized:
        slots.push_back({name + ".quants", i, false});
        slots.push_back({name + ".scales", i, false});
        break;
      case SlotKind::weight:
        for (const char* plane : {"", ".codes", ".scales", ".zeros", ".biases", ".quants"})
          slots.push_back({name + plane, i, true});
        break;
      case SlotKind::tensors:
        for (size_t t = 0; t < total; ++t)
          slots.push_back({name + "[" + std::to_string(t) + "]", i, false});
        break;
    }
  }
  if (def.segments >= 0) slots.push_back({"offsets", -1, true});
  return slots;
}

int results_of(const OpDef& def) {
  if (!def.returns) return def.writes >= 0 ? 0 : 1;
  const std::string_view text = def.returns, word = "Tensor";
  int n = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++n;
  return n;
}

// ACCEL_SKIP_KERNEL=name[,name] switches rows off, so that tests reach the general ones.
static bool skipped(const char* kernel) {
  const char* list = std::getenv("ACCEL_SKIP_KERNEL");
  if (!list) return false;
  const std::string names = "," + std::string(list) + ",";
  return names.find("," + std::string(kernel) + ",") != std::string::npos;
}

// Kernel parameters are 32-bit counts and indices.
static bool needs_64_bits(const Call& call) {
  constexpr int64_t kLargest = 0xffffffff;
  for (const In& in : call.in)
    if (in.present && in.shape.elements() > kLargest) return true;
  for (const Type& t : call.results)
    if (t.shape.elements() > kLargest) return true;
  return false;
}

Choice select(const Call& call, const Limits& limits, const Site& site) {
  Choice choice;
  const bool wide = needs_64_bits(call);
  for (const KernelRow& row : call.def->kernels) {
    if (row.backend != limits.backend) continue;
    const char* why = row.needs ? row.needs(call, limits) : nullptr;
    if (!why) why = row.reject(call, limits);
    if (!why && wide) why = "indexes in 32 bits";
    if (!why && skipped(row.kernel)) why = "is switched off by ACCEL_SKIP_KERNEL";
    if (!why) {
      choice.row = &row;
      return choice;
    }
    choice.rejected.push_back(std::string(row.kernel) + " " + why);
  }
  std::string text = std::string(call.def->name) + ": this backend cannot run it: ";
  std::vector<Problem> rejected;
  for (const std::string& entry : choice.rejected) {
    const size_t space = entry.find(' ');
    rejected.push_back({"unsupported", entry.substr(0, space), entry.substr(space + 1)});
  }
  if (choice.rejected.empty()) text += std::string("no kernel for ") + name_of(limits.backend);
  for (size_t i = 0; i < choice.rejected.size(); ++i) text += (i ? "; " : "") + choice.rejected[i];
  if (!site.file.empty()) text += ", recorded at " + site.to_string();
  Error e = unsupported_error(text);
  e.op = call.def->name;
  e.site = site;
  e.problems = std::move(rejected);
  throw e;
}

}  // namespace accel
