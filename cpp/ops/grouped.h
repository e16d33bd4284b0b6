// What grouped_matvec and grouped_matmul share: operands, shape rule, kernel rows.
#pragma once
#include "ops/products.h"

namespace accel {

// Slots, after those of the weight's kinds. The last one, offsets, belongs to counts.
enum GroupedSlot {
  kGroupedX,
  kGroupedW,
  kGroupedCodes,
  kGroupedScales,
  kGroupedZeros,
  kGroupedBiases,
  kGroupedQuants,
  kGroupedCounts,
  kGroupedBias,
};

std::vector<Type> infer_grouped(const Call& c);
void grouped_params(const Call& c, Params& p);
std::vector<OperandSpec> grouped_operands();

enum class GroupedKind : uint8_t { floats, int4, int8 };

// Kind of weight and dtype of its values or planes of one kernel.
template <GroupedKind Kind, DType Values>
const char* grouped_kind(const Call& c) {
  const int slot = Kind == GroupedKind::floats ? kGroupedW
                   : Kind == GroupedKind::int4 ? kGroupedCodes
                                               : kGroupedQuants;
  if (!c.in[size_t(slot)].present)
    return Kind == GroupedKind::floats ? "reads a float weight"
           : Kind == GroupedKind::int4 ? "reads an Int4 weight"
                                       : "reads a Quantized weight";
  const int values = Kind == GroupedKind::floats ? kGroupedW : kGroupedScales;
  if (c.in[size_t(values)].dtype == Values) return nullptr;
  return Values == DType::F32   ? "reads f32 weights or scales"
         : Values == DType::F16 ? "reads f16 weights or scales"
                                : "reads bf16 weights or scales";
}
// One kernel over activations rounded to int8.
template <GroupedKind Kind, DType Values>
const char* grouped_by_int8(const Call& c, const Limits&) {
  if (const char* why = grouped_kind<Kind, Values>(c)) return why;
  return keeps_activations(c);
}
// One kernel in one order; Whole: no group or block straddles two rows of the weight.
template <bool NK, GroupedKind Kind, DType Values, bool Whole = false>
const char* grouped_weight(const Call& c, const Limits&) {
  if (weight_is_nk(c) != NK) return NK ? "reads a weight in nk" : "reads a weight in kn";
  if (const char* why = grouped_kind<Kind, Values>(c)) return why;
  if (const char* why = rounds_to_int8(c)) return why;
  const int64_t group = Kind == GroupedKind::int4 ? c.group : 32;
  if (Whole && c.in[kGroupedX].shape[1] % group != 0)
    return "needs K to be a multiple of the group or block";
  return nullptr;
}

KernelRow grouped_lane16(const char* kernel, Reject reject);
KernelRow grouped_chain(const char* kernel, Reject reject);

// The rows of one of the two operators; their kernels differ in how rows of one expert share the
// weight, which changes no bit.
#define ACCEL_GROUPED_ROWS(op)                                                                    \
  {                                                                                               \
    grouped_lane16(op "_nk_f32", grouped_weight<true, GroupedKind::floats, DType::F32>),          \
        grouped_lane16(op "_nk_f16", grouped_weight<true, GroupedKind::floats, DType::F16>),      \
        grouped_lane16(op "_nk_bf16", grouped_weight<true, GroupedKind::floats, DType::BF16>),    \
        grouped_lane16(op "_nk_int4_f16",                                                         \
                       grouped_weight<true, GroupedKind::int4, DType::F16, true>),                \
        grouped_lane16(op "_nk_int4_bf16",                                                        \
                       grouped_weight<true, GroupedKind::int4, DType::BF16, true>),               \
        grouped_lane16(op "_nk_int4_f32",                                                         \
                       grouped_weight<true, GroupedKind::int4, DType::F32, true>),                \
        grouped_lane16(op "_nk_any_int4_f16",                                                     \
                       grouped_weight<true, GroupedKind::int4, DType::F16>),                      \
        grouped_lane16(op "_nk_any_int4_bf16",                                                    \
                       grouped_weight<true, GroupedKind::int4, DType::BF16>),                     \
        grouped_lane16(op "_nk_any_int4_f32",                                                     \
                       grouped_weight<true, GroupedKind::int4, DType::F32>),                      \
        grouped_lane16(op "_nk_int8", grouped_weight<true, GroupedKind::int8, DType::F16, true>), \
        grouped_lane16(op "_nk_any_int8", grouped_weight<true, GroupedKind::int8, DType::F16>),   \
        grouped_chain(op "_kn_f32", grouped_weight<false, GroupedKind::floats, DType::F32>),      \
        grouped_chain(op "_kn_f16", grouped_weight<false, GroupedKind::floats, DType::F16>),      \
        grouped_chain(op "_kn_bf16", grouped_weight<false, GroupedKind::floats, DType::BF16>),    \
        grouped_chain(op "_kn_int4_f16", grouped_weight<false, GroupedKind::int4, DType::F16>),   \
        grouped_chain(op "_kn_int4_bf16", grouped_weight<false, GroupedKind::int4, DType::BF16>), \
        grouped_chain(op "_kn_int4_f32", grouped_weight<false, GroupedKind::int4, DType::F32>),   \
        grouped_chain(op "_kn_int8", grouped_weight<false, GroupedKind::int8, DType::F16>),       \
        int8_row(op "_int4_f16_by_int8", grouped_by_int8<GroupedKind::int4, DType::F16>),         \
        int8_row(op "_int4_bf16_by_int8", grouped_by_int8<GroupedKind::int4, DType::BF16>),       \
        int8_row(op "_int4_f32_by_int8", grouped_by_int8<GroupedKind::int4, DType::F32>),         \
        int8_row(op "_int8_by_int8", grouped_by_int8<GroupedKind::int8, DType::F16>),             \
  }

}  // namespace accel
