// What the matrix products share: weight order, operand checks and the predicates of their kernel
// rows.
#pragma once
#include "ops/rules.h"
#include "shared/params/product.h"

namespace accel {

// The attributes of every product: the order at index 0; of quantized ones, how activations are
// rounded, at index 1.
enum { w_order, activations };
inline AttrSpec w_order_spec() {
  return {"w_order",
          AttrType::text,
          "'kn': the weight is [K, N]; 'nk': it is [N, K], as checkpoints store it",
          false,
          false,
          "'kn'"};
}

inline AttrSpec activations_spec() {
  return {"activations",
          AttrType::text,
          "how x is rounded first: 'int8' by blocks along K ('nk' alone), 'f16' or 'bf16'",
          false,
          false,
          "None"};
}
// ProductParams::activations.
enum class Activations : uint8_t { wide, f16, bf16, int8 };
Activations activations_of(const Call& c);
// Refuses another word, int8 in 'kn', and a K that blocks of `block` do not divide; slot 0 holds
// the activations.
void require_activations(const Call& c, int64_t block);
const char* activations_note(const Call& c);
// Why a row with f32 or f16 operands, or one of int8, does not take the call.
const char* rounds_to_int8(const Call& c);
const char* keeps_activations(const Call& c);
// Why a row of a quantized product in one order, over planes as declared, does not take the call.
const char* needs_plain(const Call& c, bool nk);
// The same of one over panels of `group` of the N columns.
const char* needs_panels(const Call& c, int64_t n, int64_t group);
// K rows of N / group panels.
Packing panels_of(const Call& c, int64_t n, int64_t group);
Packing int4_panels_of(const Call& c);

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

template <DType Planes>
const char* int4_scales(const Call& c) {
  if (c.in[2].dtype == Planes) return nullptr;
  return Planes == DType::F32   ? "reads f32 scales"
         : Planes == DType::F16 ? "reads f16 scales"
                                : "reads bf16 scales";
}
// Planes of one int4 kernel over activations rounded to int8.
template <DType Planes>
const char* int4_by_int8(const Call& c, const Limits&) {
  if (const char* why = keeps_activations(c)) return why;
  return int4_scales<Planes>(c);
}
// Planes of one int4 kernel in panels of groups.
template <DType Planes>
const char* int4_panels(const Call& c, const Limits&) {
  if (const char* why = needs_panels(c, c.weights / c.in[0].shape.back(), c.group)) return why;
  return int4_scales<Planes>(c);
}
// Planes of one int4 kernel; Whole: no group straddles two rows of the weight.
template <bool NK, DType Planes, bool Whole>
const char* int4_planes(const Call& c, const Limits&) {
  if (const char* why = needs_plain(c, NK)) return why;
  if (const char* why = int4_scales<Planes>(c)) return why;
  if (Whole && c.in[0].shape.back() % c.group != 0) return "needs K to be a multiple of the group";
  return nullptr;
}

// How all of them are launched on a GPU.
void launch_product(const Call& c, const KernelRow& row, Launches& out);

// The float rows given, and in front of Metal's each of them by matrices of a SIMD group, where K
// and N are multiples of eight and 64 at least. M takes no part: one row is padded.
std::vector<KernelRow> with_matrix8(std::vector<KernelRow> rows);

// The rows given, and in front of CUDA's each in lane16 of whole rows by rings of shared memory
// where K and the device allow it: the same order, so the same bits (shaders/cuda/ring.h). M takes
// no part: many rows run as in the row behind.
std::vector<KernelRow> with_rings(std::vector<KernelRow> rows);
// The rows given, and in front of CUDA's those on matrix units, where the device was asked for them
// (Limits::matrix) and has the memory: weights [N, K] of f16 or bf16. M takes no part.
std::vector<KernelRow> with_matrix16(std::vector<KernelRow> rows);
// What a row is called among the functions, without the part that its launch appends, and the
// operands at the places of its functions.
std::string product_function(const Call& c, const KernelRow& row);
// Operators with equal kernels share their functions: of whom a name is.
std::string shared_name(std::string name);
std::vector<int> product_places(const Call& c);

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

// A chain over a weight packed in panels of whole groups of columns.
inline KernelRow panels_row(const char* kernel, Reject reject, Packing (*packing)(const Call&)) {
  return {Backend::cpu,
          kernel,
          reject,
          "chain",
          "order chain; one row streams packed panels, more rows share them widened to f32",
          kernel,
          packing};
}
inline KernelRow int8_row(const char* kernel, Reject reject) {
  return {Backend::cpu,
          kernel,
          reject,
          "int8_group",
          "activations rounded to int8 by blocks; order int8_group, integer sums inside a block",
          kernel};
}

}  // namespace accel
