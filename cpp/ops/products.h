// What the matrix products share: weight order, operand checks and the predicates of their kernel
// rows.
#pragma once
#include "ops/rules.h"
#include "shared/params/matmul.h"
#include "shared/params/quant_matmul.h"

namespace accel {

// The attribute of every product, at index 0.
enum { w_order };
inline AttrSpec w_order_spec() {
  return {"w_order",
          AttrType::text,
          "'kn': the weight is [K, N]; 'nk': it is [N, K], as checkpoints store it",
          false,
          false,
          "'kn'"};
}

// matmul and linear: ranks, K, the dtype pair; the result type.
Type infer_float_product(const Call& c);
void float_product_params(const Call& c, Params& p);

// int4_matvec and int4_matmul: planes, activation dtype, rank, K; N of the weight.
int64_t infer_int4_columns(const Call& c, int rank, const char* other);
void int4_params(const Call& c, Params& p);

// Selection looks at dtypes, order and K alone; the batch axis decides nothing.
bool weight_is_nk(const Call& c);

// The (activation, weight) dtypes of one float kernel; the order comes first in the refusal.
template <bool NK, DType X, DType W>
const char* float_pair(const Call& c, const Limits&) {
  if (weight_is_nk(c) != NK) return NK ? "reads a weight in nk" : "reads a weight in kn";
  if (c.in[0].dtype != X)
    return X == DType::F32 ? "reads f32 activations" : "reads f16 activations";
  if (c.in[1].dtype == W) return nullptr;
  return W == DType::F32   ? "reads an f32 weight"
         : W == DType::F16 ? "reads an f16 weight"
                           : "reads a bf16 weight";
}

// Planes of one int4 kernel; Whole: no group straddles two rows of the weight.
template <bool NK, DType Planes, bool Whole>
const char* int4_planes(const Call& c, const Limits&) {
  if (weight_is_nk(c) != NK) return NK ? "reads a weight in nk" : "reads a weight in kn";
  if (c.in[2].dtype != Planes)
    return Planes == DType::F32   ? "reads f32 scales"
           : Planes == DType::F16 ? "reads f16 scales"
                                  : "reads bf16 scales";
  if (Whole && c.in[0].shape.back() % c.group != 0) return "needs K to be a multiple of the group";
  return nullptr;
}

// One CPU row of a product. A kernel serves every M, so each row is a batch group of its own.
using Reject = const char* (*)(const Call&, const Limits&);
inline KernelRow lane16_row(const char* kernel, Reject reject) {
  return {Backend::cpu,
          kernel,
          reject,
          "lane16",
          "order lane16; one row streams the weight, more rows share tiles of it widened to f32",
          kernel};
}
inline KernelRow chain_row(const char* kernel, Reject reject) {
  return {Backend::cpu,
          kernel,
          reject,
          "chain",
          "order chain; one row streams the weight, more rows share panels of it widened to f32",
          kernel};
}

}  // namespace accel
