// attention: a query against two cached states, decode and prefill, in blocks of 128 positions.
#include "shared/params/attention.h"
#include "ops/rules.h"

namespace accel {

enum { scale_name, base_name };
enum { q, k, v, lengths };

static constexpr int64_t kMaxHeadDim = 256;

static void require_caches(const Call& c) {
  const In& keys = c.in[k];
  require_dtype_in(c, k, {DType::F32, DType::F16});
  if (c.in[v].dtype != keys.dtype)
    refuse_dtype(c, v, std::string(name_of(keys.dtype)) + ", as k is");
  require_rank(c, k, 3);
  if (!(c.in[v].shape == keys.shape)) refuse_shape(c, v, keys.shape.to_string() + ", as k is");
}

static std::vector<Type> infer(const Call& c) {
  const In& query = c.in[q];
  require_dtype(c, q, DType::F32);
  const int rank = query.shape.rank();
  if (rank != 2 && rank != 3) refuse_shape(c, q, "[heads, head_dim] or [tokens, heads, head_dim]");
  require_contiguous(c, q);
  require_caches(c);
  const Shape& cache = c.in[k].shape;
  const int64_t dim = query.shape.back(), heads = query.shape[rank - 2];
  if (cache[2] != dim)
    refuse_shape(c, q,
                 "of head_dim " + std::to_string(cache[2]) + ", as k " + cache.to_string() + " is");
  if (dim % 8 || dim > kMaxHeadDim)
    refuse_shape(c, q, "of a head_dim that is a multiple of 8 and at most 256");
  if (heads % cache[1])
    refuse_shape(
        c, q,
        "of a head count that is a multiple of the " + std::to_string(cache[1]) + " heads of k");
  require_dtype(c, lengths, DType::U32);
  require_elements(c, lengths, 1);
  const bool prefill = rank == 3, based = c.attr(base_name).set;
  if (prefill && !based)
    refuse_attr(c, base_name,
                "a declared u32 scalar: q " + query.shape.to_string() + " is a prefill");
  if (!prefill && based)
    refuse_attr(c, base_name, "None: q " + query.shape.to_string() + " is one decode row");
  return {Type{DType::F32, query.shape}};
}

static void params(const Call& c, Params& p) {
  const Shape &query = c.in[q].shape, &cache = c.in[k].shape;
  const bool prefill = query.rank() == 3;
  AttentionParams out = {};
  out.S = prefill ? uint32_t(query[0]) : 1;
  out.heads = uint32_t(query[query.rank() - 2]);
  out.kv_heads = uint32_t(cache[1]);
  out.head_dim = uint32_t(cache[2]);
  out.capacity = uint32_t(cache[0]);
  out.prefill = prefill;
  p.put(out);
}

static const char* cache_not_f32(const Call& c, const Limits&) {
  return c.in[k].dtype == DType::F32 ? nullptr : "reads f32 caches";
}
static const char* cache_not_f16(const Call& c, const Limits&) {
  return c.in[k].dtype == DType::F16 ? nullptr : "reads f16 caches";
}

extern const OpDef def_attention = {
    .op = Op::attention,
    .name = "attention",
    .doc =
        "Softmax attention of q over cached keys and values; query head h reads head h / (heads / "
        "kv_heads).\n\n"
        "q [heads, D] is one decode row at position len - 1; q [S, heads, D] is a prefill whose "
        "row s stands at\n"
        "base + s and sees positions j < len with j <= base + s. len is lengths[0], at most the "
        "capacity, and\n"
        "counts this step's tokens. Blocks of 128 positions are walked in order with a running "
        "maximum. A row\n"
        "that sees nothing is zero. A position that a row does not see takes no part in its "
        "arithmetic.",
    .operands = {{"q", "f32 [heads, D] or [S, heads, D]; D a multiple of 8, at most 256"},
                 {"k", "f32 or f16 [capacity, kv_heads, D]", SlotKind::state},
                 {"v", "dtype and shape of k", SlotKind::state},
                 {"lengths", "u32 [1]", SlotKind::tensor, false, "lengths"}},
    .attrs = {{"scale_name", AttrType::scalar_f32,
               "name of a declared f32 scalar that multiplies the scores"},
              {"base_name", AttrType::scalar_u32,
               "name of a declared u32 scalar: position of the first row of a prefill", false,
               false, "None"}},
    .infer = infer,
    .params = params,
    .kernels = {{Backend::cpu, "attention_f32", cache_not_f32, "attention_block128",
                 "blocks of 128 positions in order"},
                {Backend::cpu, "attention_f16", cache_not_f16, "attention_block128",
                 "blocks of 128 positions in order, f16 widened exactly"}},
    .source = "Milakov and Gimelshein, Online normalizer calculation for softmax, 2018",
    .checks = {{DataRule::at_most, lengths, [](const Call& c) { return c.in[k].shape[0]; }}},
};

}  // namespace accel
