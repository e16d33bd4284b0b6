// What the operators over rows of the last axis share.
#pragma once
#include "ops/rules.h"
#include "shared/params/rows.h"

namespace accel {

inline RowsParams rows_params(const Call& c) {
  RowsParams p = {};
  p.rows = uint32_t(rows_of(c.in[0]));
  p.width = uint32_t(width_of(c.in[0]));
  return p;
}

// One result per row: the leading shape, [1] for a single row of rank 1.
inline Shape row_results(const Shape& x) {
  if (x.rank() == 1) return Shape{1};
  return Shape(std::vector<int64_t>(x.begin(), x.end() - 1));
}

inline const char* rows_not_f32(const Call& c, const Limits&) {
  return c.in[0].dtype == DType::F32 ? nullptr : "reads f32";
}
inline const char* rows_not_f16(const Call& c, const Limits&) {
  return c.in[0].dtype == DType::F16 ? nullptr : "reads f16";
}

// Of the kernels with more threads a row.
inline const char* too_short(const Call& c, const Limits&) {
  return width_of(c.in[0]) > 1024 ? nullptr : "takes rows longer than 1024";
}

}  // namespace accel
