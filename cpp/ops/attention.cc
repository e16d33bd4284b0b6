// attention: queries against two cached states, in four forms, in blocks of 128 positions.
#include "shared/params/attention.h"
#include "ops/attention_forms.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

using namespace attention;

static constexpr int64_t kMaxHeadDim = 256;

static void require_query(const Call& c) {
  require_dtype(c, q, DType::F32);
  const int rank = c.in[q].shape.rank();
  if (rank < 2 || rank > 4)
    refuse_shape(c, q, "[heads, head_dim], [tokens, heads, head_dim] or [B, 1, heads, head_dim]");
  require_contiguous(c, q);
}

static void require_caches(const Call& c) {
  const In& keys = c.in[k];
  require_dtype_in(c, k, {DType::F32, DType::F16});
  if (c.in[v].dtype != keys.dtype)
    refuse_dtype(c, v, std::string(accel::name_of(keys.dtype)) + ", as k is");
  require_rank(c, k, 3);
  if (!(c.in[v].shape == keys.shape)) refuse_shape(c, v, keys.shape.to_string() + ", as k is");
}

static void require_heads(const Call& c) {
  const Shape &query = c.in[q].shape, &cache = c.in[k].shape;
  const int64_t dim = query.back(), heads = query[query.rank() - 2];
  if (cache[2] != dim)
    refuse_shape(c, q,
                 "of head_dim " + std::to_string(cache[2]) + ", as k " + cache.to_string() + " is");
  if (dim % 8 || dim > kMaxHeadDim)
    refuse_shape(c, q, "of a head_dim that is a multiple of 8 and at most 256");
  if (heads % cache[1])
    refuse_shape(
        c, q,
        "of a head count that is a multiple of the " + std::to_string(cache[1]) + " heads of k");
}

// How many sequences there are. Of lengths, pages and extents, two of a ragged call agree where one
// is wrong, and that one is to be named.
static int64_t sequences_of(const Call& c) {
  switch (form_of(c)) {
    case kAttentionDecode:
    case kAttentionPrefill:
      return 1;
    case kAttentionBatched:
      return c.in[q].shape[0];
    case kAttentionRagged: {
      const In &table = c.in[pages], &extents = c.in[query_extents];
      const bool agree =
          table.present && table.shape.rank() == 2 && table.shape[0] == extents.shape.elements();
      return agree ? table.shape[0] : c.in[lengths].shape.elements();
    }
  }
  return 0;
}

static std::string form_text(const Call& c) {
  return std::string("q ") + c.in[q].shape.to_string() +
         (c.in[query_extents].present ? " with query_extents" : "") + " is the " +
         attention::name_of(form_of(c)) + " form";
}

static void require_pages(const Call& c) {
  const In& table = c.in[pages];
  const AttentionForm form = form_of(c);
  if (!table.present) {
    if (c.attr(block).i != 0) refuse_attr(c, block, "0: pages is None");
    if (form == kAttentionBatched || form == kAttentionRagged)
      refuse(ErrorKind::attr, "pages", "is None and must be given: " + form_text(c));
    return;
  }
  require_dtype(c, pages, DType::U32);
  const bool one = form == kAttentionDecode || form == kAttentionPrefill;
  const int64_t n = sequences_of(c);
  const int rank = table.shape.rank();
  if (!(rank == 2 && table.shape[0] == n) && !(rank == 1 && one))
    refuse_shape(
        c, pages,
        (one ? "[max_pages] or [1, max_pages]: " : "[" + std::to_string(n) + ", max_pages]: ") +
            form_text(c));
  if (c.attr(block).i <= 0) refuse_attr(c, block, "positive: pages is given");
}

static void require_form(const Call& c) {
  const AttentionForm form = form_of(c);
  const bool based = c.attr(base_name).set;
  if (form == kAttentionPrefill && !based)
    refuse_attr(c, base_name, "a declared u32 scalar: " + form_text(c));
  if (form != kAttentionPrefill && based) refuse_attr(c, base_name, "None: " + form_text(c));
  const Shape& query = c.in[q].shape;
  if (form == kAttentionBatched && query[1] != 1)
    refuse_shape(c, q, "[B, 1, heads, head_dim]: its axis 1 is " + std::to_string(query[1]));
  const In& extents = c.in[query_extents];
  if (!extents.present) return;
  if (form != kAttentionRagged)
    refuse(ErrorKind::shape, "query_extents",
           "is " + type_text(extents) + " and must be None where q is " + query.to_string() +
               ", not [tokens, heads, head_dim]");
  require_dtype(c, query_extents, DType::U32);
  require_elements(c, query_extents, sequences_of(c));
}

static void require_options(const Call& c) {
  const Shape& query = c.in[q].shape;
  if (c.attr(window).set && c.attr(window).i < 1) refuse_attr(c, window, "1 or more");
  if (c.attr(soft_cap).set) require_positive(c, soft_cap);
  if (c.in[sinks].present) require_type(c, sinks, DType::F32, {query[query.rank() - 2]});
  if (!c.attr(operands).set) return;
  if (c.attr(operands).s != "f16") refuse_attr(c, operands, "'f16' or None");
  if (c.in[k].dtype != DType::F16) refuse_attr(c, operands, "None: k is f32");
}

static std::vector<Type> infer(const Call& c) {
  require_query(c);
  require_caches(c);
  require_heads(c);
  require_dtype(c, lengths, DType::U32);
  require_elements(c, lengths, sequences_of(c));
  const Shape& query = c.in[q].shape;
  if (query.rank() == 4) return {Type{DType::F32, {query[0], query[2], query[3]}}};
  return {Type{DType::F32, query}};
}

static void rest(const Call& c) {
  require_pages(c);
  require_form(c);
  require_options(c);
}

static void params(const Call& c, Params& p) {
  const Shape &query = c.in[q].shape, &cache = c.in[k].shape;
  AttentionParams out = {};
  out.form = form_of(c);
  out.rows = query.rank() == 2 ? 1 : uint32_t(query[0]);
  out.heads = uint32_t(query[query.rank() - 2]);
  out.kv_heads = uint32_t(cache[1]);
  out.head_dim = uint32_t(cache[2]);
  out.capacity = uint32_t(cache[0]);
  out.sequences = uint32_t(sequences_of(c));
  if (c.in[pages].present) {
    out.block = block_of(c);
    out.max_pages = uint32_t(c.in[pages].shape.back());
  }
  const uint64_t seen = c.attr(window).set ? uint64_t(c.attr(window).i) : 0;
  out.window[0] = uint32_t(seen);
  out.window[1] = uint32_t(seen >> 32);
  out.soft_cap = c.attr(soft_cap).set ? c.attr(soft_cap).f : 0.0f;
  out.has_sinks = c.in[sinks].present;
  out.blocks = blocks_of(c);
  p.put(out);
}

// Rows and positions are counted in 32 bits.
static const char* too_large(const Call& c) {
  const int64_t limit = 0xffffffff;
  for (const int slot : {q, k, lengths, pages})
    for (int axis = 0; axis < c.in[size_t(slot)].shape.rank(); ++axis)
      if (c.in[size_t(slot)].shape[axis] > limit) return "takes axes of up to 2^32 - 1";
  return nullptr;
}
static const char* not_f32(const Call& c, const Limits&) {
  return c.in[k].dtype == DType::F32 ? too_large(c) : "reads f32 caches";
}
static const char* not_f16(const Call& c, const Limits&) {
  if (c.in[k].dtype != DType::F16) return "reads f16 caches";
  return c.attr(operands).set ? "keeps its operands in f32" : too_large(c);
}
static const char* not_narrow(const Call& c, const Limits&) {
  return c.attr(operands).set ? too_large(c) : "narrows its operands";
}

// ---------------------------------------------------------------- the GPUs' rows

// Few rows: a group a block of 128 positions, whose part waits in scratch for the merge. Many: a
// group for a tile of rows and heads. Both have the order attention_split128, so the choice changes
// no bit.
static constexpr int64_t kSplitHeads = 4, kSplitRows = 16, kSplitScratch = int64_t(1) << 27;

// Of the kernel that stages K and V: what a launch gives it, and what it declares itself at most.
static constexpr int64_t kStagedOwn = 9 << 10;
static int64_t staged_bytes(int64_t dim) {
  return 2 * 128 * (2 * dim + 16);
}

static bool few_rows(const Call& c, int64_t rows) {
  const AttentionForm form = form_of(c);
  if (rows <= kSplitRows || form == kAttentionBatched) return true;
  return form == kAttentionRagged && rows <= 2 * sequences_of(c);
}

static void launch(const Call& c, const KernelRow& row, Launches& out) {
  const Shape &query = c.in[q].shape, &cache = c.in[k].shape;
  const int64_t rows = query.rank() == 2 ? 1 : query[0], heads = query[query.rank() - 2];
  const int64_t dim = cache[2], share = heads / cache[1], blocks = blocks_of(c);
  const double parts = double(rows) * double(heads) * double(blocks);  // may be any number
  const std::string name = row.kernel;
  if (few_rows(c, rows) && parts * double(dim + 4) * 4 <= double(kSplitScratch)) {
    const int64_t tile = share == 1 ? 1 : kSplitHeads, tiles = (share + tile - 1) / tile;
    launch_own(row, out, uint32_t(rows * cache[1] * tiles * blocks), 128).function =
        name + (tile == 1 ? "_split1" : "_split");
    launch_own(row, out, uint32_t(rows * heads), uint32_t((dim + 31) / 32 * 32)).function =
        "attention_merge";
    out.scratch = rows * heads * blocks * (dim + 4) * 4;
    return;
  }
  const int64_t members = dim <= 128 ? 16 : 8;
  launch_own(row, out, groups_of(rows * share, members) * uint32_t(cache[1]), 128).function =
      name + "_rows";
}

// Of few rows on CUDA: a block's K and V are on their way to the memory of a group at once.
static constexpr const char* kStaged = "_staged";
static const char* needs_staged(const Call& c, const Limits& limits) {
  const Shape &query = c.in[q].shape, &cache = c.in[k].shape;
  if (query[query.rank() - 2] == cache[1]) return "needs heads that share those of the cache";
  return staged_bytes(cache[2]) + kStagedOwn > limits.group_bytes
             ? "needs more memory of a group than the device has"
             : nullptr;
}
static void launch_staged(const Call& c, const KernelRow& row, Launches& out) {
  const std::string name = row.kernel;
  const std::string plain = name.substr(0, name.size() - std::strlen(kStaged));
  KernelRow of = row;
  of.kernel = plain.c_str();
  launch(c, of, out);
  if (out.list.size() == 1) return;  // many rows
  Launch &split = out.list[0], &merge = out.list[1];
  split.function = name + "_split";
  split.group_bytes = uint32_t(staged_bytes(c.in[k].shape[2]));
  merge.function = "attention_staged_merge";
  merge.threads = 128;
}

static std::vector<KernelRow> kernels() {
  const std::vector<KernelRow> own = {
      {Backend::cpu, "attention_f32", not_f32, "attention_block128",
       "blocks of 128 positions in order"},
      {Backend::cpu, "attention_f16", not_f16, "attention_block128",
       "blocks of 128 positions in order, f16 widened exactly"},
      {Backend::cpu, "attention_f16_narrow", not_narrow, "attention_block128",
       "blocks of 128 positions in order, q and weights rounded to f16"}};
  std::vector<KernelRow> all = on_gpus(own, launch), made;
  for (KernelRow& row : all)
    if (row.backend != Backend::cpu) row.order = "attention_split128";
  const auto first = std::find_if(all.begin(), all.end(),
                                  [](const KernelRow& r) { return r.backend == Backend::cuda; });
  for (auto of = first; of != all.end(); ++of) {
    if (std::string_view(of->kernel) == "attention_f32") continue;  // no gain: twice the bytes
    KernelRow row = *of;
    const bool narrow = std::string_view(of->kernel) != "attention_f16";
    row.kernel = narrow ? "attention_f16_narrow_staged" : "attention_f16_staged";
    row.reason = narrow ? "blocks of 128 positions in order, q and weights rounded to f16; of few "
                          "rows each is staged whole"
                        : "blocks of 128 positions in order, f16 widened exactly; of few rows each "
                          "is staged whole";
    row.needs = needs_staged;
    row.launches = launch_staged;
    made.push_back(row);
  }
  all.insert(first, made.begin(), made.end());
  return all;
}

extern const OpDef def_attention = {
    .op = Op::attention,
    .name = "attention",
    .doc =
        "Softmax attention of q over cached keys and values; query head h reads head h / (heads / "
        "kv_heads).\n\n"
        "q is [heads, D], one decode row at position len - 1; [S, heads, D], a prefill whose row s "
        "stands at base + s;\n"
        "[B, 1, heads, D], one such decode row of each sequence; or, with query_extents, [T, "
        "heads, "
        "D], where token i of\n"
        "the n tokens of sequence b stands at len - n + i and rows past the sum of the extents are "
        "zero. len is lengths[b],\n"
        "at most the capacity (paged: max_pages * block), and counts this step's tokens. A row at "
        "position p sees positions\n"
        "j < len with j <= p. Batched and ragged calls are paged, the others may be: position j is "
        "at row\n"
        "pages[b, j / block] * block + j % block of the caches; a page out of range holds "
        "nothing.\n\n"
        "Blocks of 128 positions are walked in order with a running maximum. A row that sees "
        "nothing is zero. A position\n"
        "that a row does not see takes no part in its arithmetic. All forms give a row at one "
        "position equal bits.",
    .operands = {{"q",
                  "f32 [heads, D], [S, heads, D], [B, 1, heads, D] or [T, heads, D]; D a "
                  "multiple of 8, at most 256"},
                 {"k", "f32 or f16 [capacity, kv_heads, D]", SlotKind::state},
                 {"v", "dtype and shape of k", SlotKind::state},
                 {"lengths", "u32 [1], or one a sequence", SlotKind::tensor, false, "lengths"},
                 {"pages", "u32 [B, max_pages], or [max_pages] where there is one sequence",
                  SlotKind::tensor, true},
                 {"query_extents", "u32 [B]: tokens of each sequence, in order", SlotKind::tensor,
                  true},
                 {"sinks", "f32 [heads]: a logit a head that joins the denominator alone",
                  SlotKind::tensor, true}},
    .attrs =
        {{"scale_name", AttrType::scalar_f32,
          "name of a declared f32 scalar that multiplies the scores"},
         {"block", AttrType::integer, "positions of a page; goes with pages", false, false, "0"},
         {"base_name", AttrType::scalar_u32,
          "name of a declared u32 scalar: position of the first row of a prefill", false, false,
          "None", true},
         {"window", AttrType::integer,
          "how many positions a row sees, its own included; all by default", false, false, "None"},
         {"soft_cap", AttrType::real,
          "c: a scaled score becomes c * tanh(score / c); off by default", false, false, "None"},
         {"operands", AttrType::text,
          "'f16', over f16 caches: q, and the exponentials that meet v, are rounded to f16", false,
          false, "None"}},
    .infer = infer,
    .rest = rest,
    .params = params,
    .kernels = kernels(),
    .segments = query_extents,
    .source = "Milakov and Gimelshein, Online normalizer calculation for softmax, 2018",
    .checks = {{DataRule::at_most, lengths, [](const Call& c) { return reach_of(c); }},
               {.kind = DataRule::pages,
                .slot = pages,
                .bound =
                    [](const Call& c) {
                      const int64_t of = block_of(c);
                      return (c.in[k].shape[0] + of - 1) / of;
                    },
                .lengths = lengths,
                .block = [](const Call& c) { return int64_t(block_of(c)); }},
               sum_within_rows(query_extents)},
};

}  // namespace accel
