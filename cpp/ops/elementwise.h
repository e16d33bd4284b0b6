// What the elementwise operators share: dtype and broadcasting rules, packing by strides,
// parameters.
#pragma once
#include "ops/rules.h"
#include "shared/params/elementwise.h"

namespace accel {

// f32 or f16, both operands of one dtype, each one contiguous run repeated over the result
// (CONTRACT 8.2).
std::vector<Type> infer_unary(const Call& c);
std::vector<Type> infer_binary(const Call& c);
void require_runs(const Call& c, const Shape& result);
void elementwise_params(const Call& c, Params& p);

inline const char* not_f32(const Call& c, const Limits&) {
  return c.in[0].dtype == DType::F32 ? nullptr : "reads f32";
}
inline const char* not_f16(const Call& c, const Limits&) {
  return c.in[0].dtype == DType::F16 ? nullptr : "reads f16";
}

}  // namespace accel
