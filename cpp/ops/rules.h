// Checks shared by the operators' shape rules. Each throws one Refusal that names operand, value
// and what must be.
#pragma once
#include <initializer_list>
#include <string>

#include "ops/opdef.h"

namespace accel {

// Operand's name as in the Python signature, its type and layout as text.
std::string operand_name(const Call& c, int slot);
std::string type_text(const In& in);
std::string attr_text(const Call& c, int attr);

[[noreturn]] void refuse(ErrorKind kind, const std::string& operand,
                         const std::string& is_and_must);
[[noreturn]] void refuse_shape(const Call& c, int slot, const std::string& must);
[[noreturn]] void refuse_dtype(const Call& c, int slot, const std::string& must);
[[noreturn]] void refuse_attr(const Call& c, int attr, const std::string& must);

void require_dtype_in(const Call& c, int slot, std::initializer_list<DType> allowed);
void require_dtype(const Call& c, int slot, DType dtype);
void require_shape(const Call& c, int slot, const Shape& shape);
void require_type(const Call& c, int slot, DType dtype, const Shape& shape);  // dtype first
void require_rank(const Call& c, int slot, int rank);
void require_rank_at_least(const Call& c, int slot, int rank);
void require_elements(const Call& c, int slot, int64_t n);
// "strided" operands name contiguous.
void require_contiguous(const Call& c, int slot);
void require_positive(const Call& c, int attr);  // finite and positive real

// "kn" or "nk" -> true for nk; anything else is refused.
bool is_nk(const Call& c, int attr);

// "; cast(xs[1], f32) converts it" where cast leads from the operand's dtype to `to`, else nothing.
std::string cast_hint(const Call& c, int slot, DType to);
std::string dtype_list(std::initializer_list<DType> types);

// Rows and width of a value seen as rows on its last axis.
inline int64_t width_of(const In& in) {
  return in.shape.back();
}
inline int64_t rows_of(const In& in) {
  return in.shape.elements() / in.shape.back();
}

// CONTRACT 8.2: an operand that is one contiguous run of `block` elements repeated over `result`.
struct Run {
  bool ok = false;
  int64_t block = 1;
};
Run run_of(const Shape& result, const In& in);
// The shape of two operands broadcast together, right-aligned; throws a Refusal of operand
// `slot_y`.
Shape broadcast_shape(const Call& c, int slot_x, int slot_y);

// The planes of a bundle, triple first (CONTRACT 13). first_slot is w.codes or w.quants.
void require_int4_planes(const Call& c, int first_slot);
void require_scales(const Call& c, int slot, int64_t count);

}  // namespace accel
