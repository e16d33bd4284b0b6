// What one operator's loop gets and gives. One function an operator, eval_<name>; a missing one
// does not link.
#pragma once
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "oracle/budget.h"
#include "oracle/oracle.h"

namespace accel::oracle {

struct Args {
  const Call& call;
  const std::vector<Slot> slots;
  Level level;
  bool budgets;
  std::vector<std::span<const double>>
      in;                            // by slot, in the index order of its view; empty where absent
  std::vector<uint32_t> scalars;     // by attribute: bits of the scalar it names
  std::span<double> written;         // the range of the state that the node writes
  std::span<double> written_budget;  // of what the node writes there; empty unless budgets
  std::vector<std::vector<double>> out;     // by result, sized
  std::vector<std::vector<double>> budget;  // by result, sized when budgets, zero
  Backend backend = Backend::cpu;           // whose rows name the orders
  bool simd_groups = true;
  bool matrix = false;

  int slot(std::string_view name) const;
  int attr(std::string_view name) const;
  bool has(std::string_view name) const { return call.in[size_t(slot(name))].present; }
  std::span<const double> operand(std::string_view name) const { return in[size_t(slot(name))]; }
  const In& type(std::string_view name) const { return call.in[size_t(slot(name))]; }
  const Attr& attribute(std::string_view name) const { return call.attr(attr(name)); }
  uint32_t scalar_u32(std::string_view name) const { return scalars[size_t(attr(name))]; }
  float scalar_f32(std::string_view name) const {
    float v;
    const uint32_t bits = scalar_u32(name);
    std::memcpy(&v, &bits, 4);
    return v;
  }
  // Accumulation order of the backend's row that takes the call.
  std::string_view order() const;
};

#define OP(n) void eval_##n(Args& a);
#include "ops/list.inc"
#undef OP

inline uint32_t as_u32(double v) {
  return uint32_t(v);
}

}  // namespace accel::oracle
