// linear_attention: the gated delta rule over a matrix-valued state, one a sequence and head.
#include "shared/params/linear_attention.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

enum { q, k, v, state, alpha, beta, query_extents };
enum { decay_first, rule };

static std::string heads_text(const Shape& keys, int64_t dim) {
  return Shape{keys[0], keys[1], dim}.to_string();
}

static void require_heads(const Call& c) {
  for (const int slot : {q, k, v, state, alpha, beta}) require_dtype(c, slot, DType::F32);
  require_dtype(c, query_extents, DType::U32);
  for (const int slot : {q, k, v}) require_rank(c, slot, 3);
  const Shape &keys = c.in[k].shape, &values = c.in[v].shape;
  if (!(c.in[q].shape == keys)) refuse_shape(c, k, c.in[q].shape.to_string() + ", as q is");
  if (values[0] != keys[0] || values[1] != keys[1])
    refuse_shape(
        c, v,
        heads_text(keys, values[2]) + " or of another last axis, because q is " + keys.to_string());
}

// One decay a key, which only forms that read the decayed state or none can take.
static bool gate_a_key(const Call& c) {
  return c.in[alpha].shape.rank() == 3;
}

static void require_gates(const Call& c) {
  const Shape &keys = c.in[k].shape, &a = c.in[alpha].shape, &b = c.in[beta].shape;
  const Shape tokens{keys[0]}, heads{keys[0], keys[1]}, column{keys[0], 1};
  const std::string layouts =
      tokens.to_string() + ", " + heads.to_string() + " or " + column.to_string();
  if (gate_a_key(c)) {
    if (!(a == keys))
      refuse_shape(c, alpha, layouts + ", or " + keys.to_string() + " with one decay a key");
    if (!c.attr(decay_first).b && c.attr(rule).s != "add")
      refuse(ErrorKind::attr, "decay_first",
             "is False and must be True for one decay a key, or rule must be 'add'; alpha is " +
                 a.to_string());
    if (!(b == heads))
      refuse_shape(c, beta, heads.to_string() + ", because alpha has one decay a key");
    return;
  }
  const auto known = [&](const Shape& s) { return s == tokens || s == heads || s == column; };
  if (!known(a)) refuse_shape(c, alpha, layouts);
  if (!known(b)) refuse_shape(c, beta, layouts);
  if (!(a == b)) refuse_shape(c, beta, a.to_string() + ", the layout of alpha");
}

static std::vector<Type> infer(const Call& c) {
  if (c.attr(rule).s != "delta" && c.attr(rule).s != "add")
    refuse_attr(c, rule, "'delta' or 'add'");
  require_heads(c);
  require_rank(c, query_extents, 1);
  require_gates(c);
  const Shape &keys = c.in[k].shape, &values = c.in[v].shape;
  const Shape wanted{c.in[query_extents].shape[0], keys[1], values[2], keys[2]};
  if (!(c.in[state].shape == wanted))
    refuse_shape(c, state,
                 wanted.to_string() + ", which is [B H Dv Dk]: one row of Dk keys a value");
  return {Type{DType::F32, values}};
}

static void params(const Call& c, Params& p) {
  const Shape &keys = c.in[k].shape, &gates = c.in[beta].shape;
  const bool by_head = gates.rank() == 2 && gates[1] == keys[1];
  LinearAttentionParams out = {};
  out.T = uint32_t(keys[0]);
  out.B = uint32_t(c.in[query_extents].shape[0]);
  out.H = uint32_t(keys[1]);
  out.Dk = uint32_t(keys[2]);
  out.Dv = uint32_t(c.in[v].shape[2]);
  out.token_gates = by_head ? out.H : 1;
  out.head_gates = by_head ? 1 : 0;
  out.key_gates = gate_a_key(c) ? out.Dk : 1;
  out.decay_first = c.attr(decay_first).b;
  out.add = c.attr(rule).s == "add";
  p.put(out);
}

// A group has sixteen rows of one state, sixteen threads each; up to 128 keys stay in registers.
static void launch(const Call& c, const KernelRow& row, Launches& out) {
  const Shape& of = c.in[state].shape;
  launch_own(row, out, uint32_t(of[0] * of[1]) * groups_of(of[2], 16)).function =
      std::string(row.kernel) + (of[3] <= 128 ? "" : "_long");
}

extern const OpDef def_linear_attention = {
    .op = Op::linear_attention,
    .name = "linear_attention",
    .doc =
        "Run the gated delta rule over each sequence's state; return the result and the state's "
        "next version.\n\n"
        "query_extents says how many tokens belong to each sequence, in order; sequence b owns "
        "slot b of state. For\n"
        "each token and head: u = S k; S[a][b] = alpha * S[a][b] + (beta * (v[a] - u[a])) * k[b], "
        "with beta = 0\n"
        "only alpha * S[a][b]; out = S q, after the update. With decay_first, alpha * S is read "
        "in place of S for u.\n"
        "rule='add' leaves u out. T tokens in one call equal T calls of one token, bit for bit. "
        "Rows from the sum of\n"
        "the extents on are zero; an extent of 0 leaves its slot as it is. The result is f32 [T, "
        "H, Dv].",
    .operands = {{"q", "f32 [T, H, Dk]"},
                 {"k", "f32 [T, H, Dk]"},
                 {"v", "f32 [T, H, Dv]"},
                 {"state", "f32 [B, H, Dv, Dk]", SlotKind::state},
                 {"alpha",
                  "f32 decay [T], [T, H] or [T, 1]; or [T, H, Dk], one a key, with decay_first or "
                  "rule='add'",
                  SlotKind::tensor, false, "alpha"},
                 {"beta",
                  "f32 [T], [T, H] or [T, 1], the layout of alpha; [T, H] with one decay a key",
                  SlotKind::tensor, false, "beta"},
                 {"query_extents", "u32 [B]: tokens of each sequence", SlotKind::tensor, false,
                  "query_extents"}},
    .attrs = {{"decay_first", AttrType::flag, "read the state for u after its decay", false, false,
               "False"},
              {"rule", AttrType::text, "'delta', or 'add' without u", false, false, "'delta'"}},
    .infer = infer,
    .params = params,
    .kernels = on_gpus({{Backend::cpu, "linear_attention", always, "lane16",
                         "order lane16 over the keys, token by token"}},
                       launch, true),
    .writes = state,
    .segments = query_extents,
    .source = "Yang, Kautz and Hatamizadeh, Gated Delta Networks, 2024",
    .returns = "tuple[Tensor, State]",
    .checks = {sum_within_rows(query_extents)},
};

}  // namespace accel
