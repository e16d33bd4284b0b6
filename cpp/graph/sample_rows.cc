// The composite sample_rows: checks of its operands, then the nodes of the stages that are given.
#include "graph/builder_state.h"
#include "graph/sampling.h"

namespace accel::tensor {

namespace {

// One operand as the checks see it.
struct Field {
  const char* name;
  const View* view;
  BuilderPtr builder;
  bool valid;
  DType dtype;
  bool optional = false;
  bool given() const { return builder != nullptr; }
};

template <class Value>
Field field(const char* name, const Value& v, DType dtype, bool optional = false) {
  return {name, &v.view(), v.builder(), v.valid(), dtype, optional};
}

std::vector<Field> fields_of(const Tensor& logits, const Tensor& draws, const RowSampling& s) {
  std::vector<Field> all = {field("logits", logits, DType::F32), field("draws", draws, DType::F32),
                            field("policy.factor", s.factor, DType::F32),
                            field("policy.top_k", s.top_k, DType::U32, true),
                            field("policy.top_p", s.top_p, DType::F32, true)};
  if (s.bias) {
    all.push_back(field("policy.bias.ids", s.bias->ids, DType::U32));
    all.push_back(field("policy.bias.values", s.bias->values, DType::F32));
  }
  if (s.penalties) {
    const RowPenalties& p = *s.penalties;
    all.push_back(field("policy.penalties.history", p.history, DType::U32));
    all.push_back(field("policy.penalties.counts", p.counts, DType::U32));
    all.push_back(field("policy.penalties.filled", p.filled, DType::U32));
    all.push_back(field("policy.penalties.repetition", p.repetition, DType::F32));
    all.push_back(field("policy.penalties.presence", p.presence, DType::F32));
    all.push_back(field("policy.penalties.frequency", p.frequency, DType::F32));
  }
  return all;
}

[[noreturn]] void refuse(ErrorKind kind, const Field& f, const std::string& text) {
  throw Refusal{kind, f.name, std::string(f.name) + " " + text};
}

void check_dtype(const Field& f) {
  const DType is = f.view->dtype;
  if (is == f.dtype) return;
  const bool casts = f.dtype == DType::F32 && (is == DType::F16 || is == DType::BF16);
  refuse(ErrorKind::dtype, f,
         std::string("is ") + name_of(is) + " and must be " + name_of(f.dtype) +
             (casts ? std::string("; cast(") + f.name + ", f32) converts it" : ""));
}

void check_shape(const Field& f, bool ok, const std::string& must) {
  if (!ok) refuse(ErrorKind::shape, f, "is " + f.view->shape.to_string() + " and must be " + must);
}

void check_place(const BuilderState& b, const Field& f) {
  const View& v = *f.view;
  if (!v.contiguous())
    refuse(ErrorKind::shape, f,
           "is " + v.type().to_string() + " with strides " + text_of(v.strides) + " and offset " +
               std::to_string(v.offset) + " and must be contiguous; contiguous(" + f.name +
               ") makes it so");
  if (!v.state) return;
  if (const std::string why = stale_text(b, v.source); !why.empty())
    refuse(ErrorKind::attr, f, why);
}

// Shapes of the fields behind logits, in the order of fields_of.
void check_shapes(const std::vector<Field>& all, const RowSampling& s) {
  const Shape& logits = all[0].view->shape;
  check_shape(all[0], logits.rank() == 2, "[rows, vocab]");
  const int64_t rows = logits[0];
  const std::string a_row =
      "[" + std::to_string(rows) + "], one entry a row of logits " + logits.to_string();
  const auto one_a_row = [&](const Field& f) {
    if (f.given()) check_shape(f, f.view->shape == Shape{rows}, a_row);
  };
  for (size_t i = 1; i < 5; ++i) one_a_row(all[i]);
  size_t next = 5;
  if (s.bias) {
    const Shape& ids = all[next].view->shape;
    check_shape(all[next], ids.rank() == 2 && ids[0] == rows,
                "[" + std::to_string(rows) + ", slots]");
    check_shape(all[next + 1], all[next + 1].view->shape == ids, ids.to_string() + ", as ids are");
    next += 2;
  }
  if (!s.penalties) return;
  const Shape& history = all[next].view->shape;
  const bool flat = history.rank() == 1 && history[0] % rows == 0;
  check_shape(all[next], flat || (history.rank() == 2 && history[0] == rows),
              "[" + std::to_string(rows) + ", entries], or flat with a multiple of " +
                  std::to_string(rows) + " entries");
  check_shape(all[next + 1], all[next + 1].view->shape == logits,
              logits.to_string() + ", one entry a token of each row");
  for (size_t i = next + 2; i < all.size(); ++i) one_a_row(all[i]);
  const Source &h = all[next].view->source, &c = all[next + 1].view->source;
  if (h.port == c.port && h.begin < c.begin + c.count && c.begin < h.begin + h.count)
    refuse(ErrorKind::attr, all[next + 1], "is the state of history and must be another");
}

// Throws the first mistake; false when an operand is poisoned.
bool check_fields(const BuilderPtr& b, const std::vector<Field>& all, const RowSampling& s) {
  for (const Field& f : all)
    if (!f.given() && !f.optional)
      refuse(ErrorKind::attr, f, std::string("is None and must be ") + name_of(f.dtype));
  for (const Field& f : all)
    if (f.given() && !f.valid) return false;
  for (const Field& f : all)
    if (f.given() && f.builder != b)
      refuse(ErrorKind::attr, f,
             "is of builder '" + f.builder->label + "' and must be of builder '" + b->label +
                 "', as the first operand is");
  for (const Field& f : all)
    if (f.given()) check_dtype(f);
  check_shapes(all, s);
  for (const Field& f : all)
    if (f.given()) check_place(*b, f);
  return true;
}

Tensor record_stages(Tensor x, const Tensor& draws, const RowSampling& s, const Site& site) {
  const auto add = [&](Op op, const std::vector<Operand>& operands) {
    return Builder::record(op, operands, {}, site);
  };
  if (s.bias) x = add(Op::row_bias, {x, s.bias->ids, s.bias->values}).value();
  if (s.penalties) {
    const RowPenalties& p = *s.penalties;
    const State cleared = add(Op::penalty_clear, {p.counts}).state;
    const State counted = add(Op::row_penalty_count, {cleared, p.history, p.filled}).state;
    x = add(Op::row_penalty_apply, {x, counted, p.repetition, p.presence, p.frequency}).value();
  }
  const Tensor best = add(Op::argmax, {x}).value();
  x = add(Op::row_scale, {x, s.factor}).value();
  x = add(Op::softmax, {x}).value();
  if (!s.top_k.null()) x = add(Op::row_top_k_mask, {x, s.top_k}).value();
  if (!s.top_p.null()) x = add(Op::row_top_p_mask, {x, s.top_p}).value();
  return add(Op::row_draw, {x, draws, s.factor, best}).value();
}

}  // namespace

Tensor sample_rows(const Tensor& logits, const Tensor& draws, const RowSampling& policy,
                   Site site) {
  const std::vector<Field> all = fields_of(logits, draws, policy);
  BuilderPtr b;
  for (const Field& f : all)
    if (!b) b = f.builder;
  if (!b)
    throw graph_error({Diagnostic{ErrorKind::attr, "sample_rows", "logits",
                                  "sample_rows: logits is None and must be f32", site}});
  try {
    if (check_fields(b, all, policy)) return record_stages(logits, draws, policy, site);
  } catch (const Refusal& r) { add_refusal(b, "sample_rows", r, site); }
  return Tensor::poison(b);
}

}  // namespace accel::tensor
