// What the nodes of sample_rows share. The composite checks its operands, so these rules only give
// types.
#pragma once
#include "ops/rules.h"
#include "shared/params/row_policy.h"

namespace accel {

// [rows, vocab] at slot 0, the result of the same shape.
inline std::vector<Type> infer_policy_rows(const Call& c) {
  require_rank(c, 0, 2);
  return {Type{DType::F32, c.in[0].shape}};
}
inline RowPolicyParams policy_params(const Call& c) {
  RowPolicyParams p = {};
  p.rows = unsigned(c.in[0].shape[0]);
  p.vocab = unsigned(c.in[0].shape[1]);
  return p;
}
inline void policy_rows_params(const Call& c, Params& p) {
  p.put(policy_params(c));
}

}  // namespace accel
