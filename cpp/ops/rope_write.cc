#include "ops/rope_write.h"

#include "ops/gpu.h"
#include "ops/rules.h"
#include "shared/params/rope_write.h"

namespace accel {

namespace {

constexpr int64_t kMostElements = int64_t(1) << 31;  // of q, k and v: indices are words
enum { state, rows, ids };

bool is(const Call* c, Op op) {
  return c && c->def->op == op;
}
int64_t elements(const In& in) {
  return in.shape.elements();
}

// What is written to a state: whole, of the state's type by the cast where there is one.
bool writes(const Call* cast, const Call& scatter) {
  const DType to = scatter.in[state].dtype;
  if (!cast) return to == DType::F32;
  const In& x = cast->in[0];
  const Run run = run_of(x.shape, x);
  return is(cast, Op::cast) && to == DType::F16 && x.dtype == DType::F32 && run.ok &&
         run.block == elements(x) && cast->results[0].dtype == to &&
         elements(x) == elements(scatter.in[rows]);
}

bool fits(const RopeWrite& r) {
  if (!is(r.rope_q, Op::rope) || !is(r.rope_k, Op::rope)) return false;
  if (!is(r.scatter_k, Op::scatter_rows) || !is(r.scatter_v, Op::scatter_rows)) return false;
  const Call &k = *r.scatter_k, &v = *r.scatter_v;
  if (k.in[state].dtype != v.in[state].dtype || !writes(r.cast_k, k) || !writes(r.cast_v, v))
    return false;
  const int64_t n = elements(k.in[ids]), turned = elements(r.rope_k->in[0]);
  if (n != elements(v.in[ids]) || n > kScatterRowsAtOnce) return false;
  if (turned != elements(k.in[rows]) || turned / n % width_of(r.rope_k->in[0])) return false;
  return elements(r.rope_q->in[0]) < kMostElements && turned < kMostElements &&
         elements(v.in[rows]) < kMostElements;
}

uint32_t groups(const RopeParams& p) {
  return groups_of(int64_t(p.rows) * (p.width - p.rotary_dim / 2), kGroupThreads);
}

}  // namespace

bool rope_write(const RopeWrite& r, const Limits& limits, CombinedLaunch& out) {
  if (limits.backend == Backend::cpu || !fits(r)) return false;
  const In &k_state = r.scatter_k->in[state], &v_state = r.scatter_v->in[state];
  RopeWriteParams p = {};
  p.q = params_of<RopeParams>(*r.rope_q);
  p.k = params_of<RopeParams>(*r.rope_k);
  p.q_groups = groups(p.q);
  p.k_groups = groups(p.k);
  p.n = uint32_t(elements(r.scatter_k->in[ids]));
  p.k_heads = p.k.rows / p.n;
  p.k_capacity = uint32_t(k_state.shape[0]);
  p.v_capacity = uint32_t(v_state.shape[0]);
  p.v_width = uint32_t(elements(v_state) / v_state.shape[0]);
  out = {};
  out.params.put(p);
  out.launch.function = k_state.dtype == DType::F16 ? "rope_write_f16" : "rope_write_f32";
  out.launch.groups[0] =
      p.q_groups + p.k_groups + groups_of(int64_t(p.n) * p.v_width, kGroupThreads);
  out.launch.threads = kGroupThreads;
  for (int i = 0; i < 4; ++i) out.operands.push_back({r.rope_q, i});  // the result is the last
  for (int i = 0; i < 3; ++i) out.operands.push_back({r.rope_k, i});
  out.operands.push_back({r.scatter_k, state});
  out.operands.push_back({r.scatter_k, ids});
  if (r.cast_v) out.operands.push_back({r.cast_v, 0});
  else out.operands.push_back({r.scatter_v, rows});
  out.operands.push_back({r.scatter_v, state});
  out.operands.push_back({r.scatter_v, ids});
  return true;
}

}  // namespace accel
