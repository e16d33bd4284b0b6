#include "ops/rules.h"

#include <cmath>

namespace accel {

std::string operand_name(const Call& c, int slot) {
  return slots_of(*c.def, c.in.size())[size_t(slot)].name;
}

std::string type_text(const In& in) {
  std::string s = name_of(in.dtype) + in.shape.to_string();
  if (!in.contiguous())
    s += " with strides " + text_of(in.strides) + " and offset " + std::to_string(in.offset);
  return s;
}

void refuse(ErrorKind kind, const std::string& operand, const std::string& is_and_must) {
  throw Refusal{kind, operand, operand + " " + is_and_must};
}
void refuse_shape(const Call& c, int slot, const std::string& must) {
  refuse(ErrorKind::shape, operand_name(c, slot),
         "is " + c.in[size_t(slot)].shape.to_string() + " and must be " + must);
}
void refuse_dtype(const Call& c, int slot, const std::string& must) {
  refuse(ErrorKind::dtype, operand_name(c, slot),
         std::string("is ") + name_of(c.in[size_t(slot)].dtype) + " and must be " + must);
}

std::string attr_text(const Call& c, int attr) {
  const AttrSpec& spec = c.def->attrs[size_t(attr)];
  const Attr& a = c.attr(attr);
  if (!a.set) return "None";
  switch (spec.type) {
    case AttrType::integer:
      return std::to_string(a.i);
    case AttrType::flag:
      return a.b ? "True" : "False";
    case AttrType::dtype:
      return name_of(a.dtype);
    case AttrType::ints:
      return text_of(a.v);
    case AttrType::text:
    case AttrType::scalar_f32:
    case AttrType::scalar_u32:
      return "'" + a.s + "'";
    case AttrType::real:
      break;
  }
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", double(a.f));
  return text;
}

void refuse_attr(const Call& c, int attr, const std::string& must) {
  refuse(ErrorKind::attr, c.def->attrs[size_t(attr)].name,
         "is " + attr_text(c, attr) + " and must be " + must);
}

std::string dtype_list(std::initializer_list<DType> types) {
  std::string s;
  size_t i = 0;
  for (DType t : types) {
    if (i) s += i + 1 == types.size() ? " or " : ", ";
    s += name_of(t);
    ++i;
  }
  return s;
}

// cast is named where it leads to what is wanted. A state is nothing that cast takes.
static std::string hint_among(const Call& c, int slot, std::initializer_list<DType> allowed) {
  const int operand = slots_of(*c.def, c.in.size())[size_t(slot)].operand;
  if (operand >= 0 && c.def->operands[size_t(operand)].kind == SlotKind::state) return "";
  const DType from = c.in[size_t(slot)].dtype;
  for (DType to : allowed) {
    const bool pair = (from == DType::F32 && to == DType::F16) ||
                      (from == DType::F16 && to == DType::F32) ||
                      (from == DType::BF16 && to == DType::F32);
    if (pair) return "; cast(" + operand_name(c, slot) + ", " + name_of(to) + ") converts it";
  }
  return "";
}

std::string cast_hint(const Call& c, int slot, DType to) {
  return hint_among(c, slot, {to});
}

void require_dtype_in(const Call& c, int slot, std::initializer_list<DType> allowed) {
  const DType is = c.in[size_t(slot)].dtype;
  for (DType t : allowed)
    if (is == t) return;
  refuse_dtype(c, slot, dtype_list(allowed) + hint_among(c, slot, allowed));
}
void require_dtype(const Call& c, int slot, DType dtype) {
  require_dtype_in(c, slot, {dtype});
}

void require_shape(const Call& c, int slot, const Shape& shape) {
  if (!(c.in[size_t(slot)].shape == shape)) refuse_shape(c, slot, shape.to_string());
}
void require_type(const Call& c, int slot, DType dtype, const Shape& shape) {
  require_dtype(c, slot, dtype);
  require_shape(c, slot, shape);
}
void require_rank(const Call& c, int slot, int rank) {
  if (c.in[size_t(slot)].shape.rank() != rank)
    refuse_shape(c, slot, "of rank " + std::to_string(rank));
}
void require_rank_at_least(const Call& c, int slot, int rank) {
  if (c.in[size_t(slot)].shape.rank() < rank)
    refuse_shape(c, slot, "of rank " + std::to_string(rank) + " or more");
}
void require_elements(const Call& c, int slot, int64_t n) {
  const Shape& s = c.in[size_t(slot)].shape;
  if (s.elements() == n) return;
  refuse(ErrorKind::shape, operand_name(c, slot),
         "is " + s.to_string() + " with " + std::to_string(s.elements()) +
             " entries and must have " + std::to_string(n));
}
void require_contiguous(const Call& c, int slot) {
  const In& in = c.in[size_t(slot)];
  if (!in.present || in.contiguous()) return;
  const std::string name = operand_name(c, slot);
  refuse(ErrorKind::shape, name,
         "is " + type_text(in) + " and must be contiguous; contiguous(" + name + ") makes it so");
}
void require_positive(const Call& c, int attr) {
  const float v = c.attr(attr).f;
  if (!(v > 0) || !std::isfinite(v)) refuse_attr(c, attr, "finite and positive");
}

bool is_nk(const Call& c, int attr) {
  const std::string& s = c.attr(attr).s;
  if (s != "kn" && s != "nk") refuse_attr(c, attr, "'kn' or 'nk'");
  return s == "nk";
}

// The extent and stride of an operand along an axis of the result; a missing or broadcast axis has
// stride 0.
static int64_t stride_along(const Shape& result, const In& in, int axis) {
  const int own = axis - (result.rank() - in.shape.rank());
  if (own < 0 || (in.shape[own] == 1 && result[axis] != 1)) return 0;
  return in.strides[size_t(own)];
}

Run run_of(const Shape& result, const In& in) {
  Run run;
  bool repeating = false;
  for (int axis = result.rank() - 1; axis >= 0; --axis) {
    if (result[axis] == 1) continue;
    const int64_t stride = stride_along(result, in, axis);
    if (!repeating && stride == 0) repeating = true;
    if (stride != (repeating ? 0 : run.block)) return run;
    if (!repeating) run.block *= result[axis];
  }
  run.ok = true;
  return run;
}

Shape broadcast_shape(const Call& c, int slot_x, int slot_y) {
  const Shape& x = c.in[size_t(slot_x)].shape;
  const Shape& y = c.in[size_t(slot_y)].shape;
  const int rank = std::max(x.rank(), y.rank());
  std::vector<int64_t> out(size_t(rank), 1);
  for (int i = 0; i < rank; ++i) {
    const int64_t a = i < x.rank() ? x[x.rank() - 1 - i] : 1;
    const int64_t b = i < y.rank() ? y[y.rank() - 1 - i] : 1;
    if (a != b && a != 1 && b != 1) refuse_shape(c, slot_y, "broadcastable with " + x.to_string());
    out[size_t(rank - 1 - i)] = std::max(a, b);
  }
  return Shape(std::move(out));
}

void require_scales(const Call& c, int slot, int64_t count) {
  const Shape& s = c.in[size_t(slot)].shape;
  if (s.elements() == count) return;
  refuse(ErrorKind::shape, operand_name(c, slot),
         "is " + s.to_string() + " with " + std::to_string(s.elements()) +
             " entries and must have " + std::to_string(count) + ", one a block");
}

void require_int4_planes(const Call& c, int first_slot) {
  const auto& in = c.in;
  const size_t codes = size_t(first_slot), scales = codes + 1, zeros = codes + 2,
               biases = codes + 3;
  const size_t offsets = in[zeros].present ? zeros : biases;
  require_dtype(c, first_slot, DType::U32);
  require_dtype_in(c, int(scales), {DType::F16, DType::BF16, DType::F32});
  if (in[offsets].dtype != in[scales].dtype)
    refuse_dtype(c, int(offsets), std::string(name_of(in[scales].dtype)) + ", as the scales are");
  const std::string bundle = c.def->operands[size_t(slots_of(*c.def)[codes].operand)].name;
  if (c.weights <= 0)
    refuse(ErrorKind::shape, bundle + ".weights",
           "is " + std::to_string(c.weights) + " and must be positive");
  if (c.group != 32 && c.group != 64 && c.group != 128)
    refuse(ErrorKind::attr, bundle + ".group",
           "is " + std::to_string(c.group) + " and must be 32, 64 or 128");
  require_elements(c, first_slot, (c.weights - 1) / 8 + 1);
  const int64_t groups = (c.weights - 1) / c.group + 1;
  require_scales(c, int(scales), groups);
  require_scales(c, int(offsets), groups);
}

}  // namespace accel
