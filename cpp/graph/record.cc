// Recording one operator: operands to slots, attributes and defaults, the shape rule, versions of
// states.
#include <algorithm>
#include <cstdlib>

#include "graph/builder.h"
#include "graph/builder_state.h"

namespace accel {

namespace {

// The tensors and states of one operand, by slot.
struct Piece {
  const View* view = nullptr;
  BuilderPtr builder;
  bool poisoned = false;
  bool given = false;
};

Piece piece(const Tensor& t) {
  if (t.null()) return {};
  return {&t.view(), t.builder(), !t.valid(), true};
}
Piece piece(const State& s) {
  if (s.null()) return {};
  return {&s.view(), s.builder(), !s.valid(), true};
}

const char* text_of_kind(SlotKind k) {
  static const char* const names[] = {"a tensor",           "a state",  "an Int4 bundle",
                                      "a Quantized bundle", "a weight", "two or more tensors"};
  return names[int(k)];
}

bool wanted(SlotKind kind, Operand::Kind given) {
  if (kind == SlotKind::weight)
    return given == Operand::tensor || given == Operand::int4 || given == Operand::quantized;
  static const Operand::Kind kinds[] = {Operand::tensor,    Operand::state,  Operand::int4,
                                        Operand::quantized, Operand::absent, Operand::tensors};
  return kinds[int(kind)] == given;
}

void append_pieces(const OperandSpec& spec, const Operand& o, std::vector<Piece>& out) {
  switch (spec.kind) {
    case SlotKind::tensor:
      out.push_back(o.kind == Operand::tensor ? piece(o.t) : Piece{});
      break;
    case SlotKind::state:
      out.push_back(o.kind == Operand::state ? piece(o.s) : Piece{});
      break;
    case SlotKind::int4:
      for (const Tensor* t : {&o.i.codes, &o.i.scales, &o.i.zeros, &o.i.biases})
        out.push_back(piece(*t));
      break;
    case SlotKind::quantized:
      for (const Tensor* t : {&o.q.quants, &o.q.scales}) out.push_back(piece(*t));
      break;
    case SlotKind::weight:
      for (const Tensor* t :
           {&o.t, &o.i.codes, o.kind == Operand::quantized ? &o.q.scales : &o.i.scales, &o.i.zeros,
            &o.i.biases, &o.q.quants})
        out.push_back(piece(*t));
      break;
    case SlotKind::tensors:
      for (const Tensor& t : o.ts) out.push_back(piece(t));
      break;
  }
}

bool same_place(const View& a, const View& b) {
  return a.source.node == b.source.node && a.source.result == b.source.result &&
         a.source.port == b.source.port && a.source.begin == b.source.begin &&
         a.source.version == b.source.version && a.offset == b.offset &&
         a.shape.elements() == b.shape.elements();
}

Tensor offsets_of(const BuilderPtr& b, const View& counts, int64_t total, const Site& site) {
  for (const Segments& s : b->segments)
    if (s.total == total && same_place(s.counts, counts)) {
      const Type& type = b->graph.node(s.node).call.results[0];
      View v{type.dtype, type.shape, contiguous_strides(type.shape), 0, {}, false};
      v.source.node = s.node;
      v.source.count = type.shape.elements();
      return Tensor(b, std::move(v));
    }
  Attr attr;
  attr.set = true;
  attr.i = total;
  View flat = counts;
  const Tensor t =
      Builder::record(Op::segment_offsets, {Tensor(b, std::move(flat))}, {{"total", attr}}, site)
          .value();
  b->segments.push_back({counts, total, t.view().source.node});
  return t;
}

class Recording {
 public:
  Recording(Op op, const std::vector<Operand>& operands, AttrArgs attrs, Site site)
      : def_(op_def(op)),
        slots_(slots_of(def_, operands.empty() ? 0 : operands[0].ts.size())),
        operands_(operands),
        args_(std::move(attrs)),
        site_(std::move(site)) {}

  Recorded run() {
    ACCEL_CHECK(operands_.size() == def_.operands.size());
    for (size_t i = 0; i < operands_.size(); ++i)
      append_pieces(def_.operands[i], operands_[i], pieces_);
    if (def_.segments >= 0) pieces_.push_back({});
    find_builder();
    try {
      check_present();
      if (poisoned()) return poison();
      check_builders();
      call_.def = &def_;
      fill_attrs();
      fill_inputs();
      call_.results = def_.infer(call_);
      check_layout();
      check_results();
      resolve_scalars(false);
      check_stale();
      if (def_.rest) def_.rest(call_);
      resolve_scalars(true);
    } catch (const Refusal& r) {
      add_refusal(b_, def_.name, r, site_);
      return poison();
    }
    return commit();
  }

 private:
  void find_builder() {
    for (const Piece& p : pieces_)
      if (p.builder) {
        b_ = p.builder;
        return;
      }
    const OperandSpec& first = def_.operands[0];
    const bool one_of_many = first.kind == SlotKind::tensors && !slots_.empty();
    const std::string name = one_of_many ? slots_[0].name : first.name;
    throw graph_error(
        {Diagnostic{ErrorKind::attr, def_.name, name,
                    std::string(def_.name) + ": " + name + " is None and must be given", site_}});
  }

  void check_present() const {
    for (size_t i = 0; i < operands_.size(); ++i) {
      const OperandSpec& spec = def_.operands[i];
      const Operand& o = operands_[i];
      if (o.kind == Operand::absent) {
        if (spec.optional) continue;
        throw Refusal{ErrorKind::attr, spec.name,
                      std::string(spec.name) + " is None and must be " + text_of_kind(spec.kind)};
      }
      if (!wanted(spec.kind, o.kind))
        throw Refusal{ErrorKind::attr, spec.name,
                      std::string(spec.name) + " is another kind of value and must be " +
                          text_of_kind(spec.kind)};
    }
    for (size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].operand < 0) continue;
      const Operand::Kind kind = operands_[size_t(slots_[i].operand)].kind;
      if (kind == Operand::tensors && !pieces_[i].given)
        throw Refusal{ErrorKind::attr, slots_[i].name,
                      slots_[i].name + " is None and must be a tensor"};
      if (kind != Operand::int4 && kind != Operand::quantized) continue;
      if (required_plane(i, kind) && !pieces_[i].given)
        throw Refusal{ErrorKind::attr, slots_[i].name,
                      slots_[i].name + " is None and must be a plane of the bundle"};
      if (kind == Operand::int4 && slots_[i].name.ends_with(".zeros") &&
          pieces_[i].given == pieces_[i + 1].given)
        throw Refusal{
            ErrorKind::attr, slots_[i].name,
            slots_[i].name + (pieces_[i].given
                                  ? " is given together with biases and must be given alone"
                                  : " is None and must be given, or biases in its place")};
    }
  }

  bool required_plane(size_t slot, Operand::Kind kind) const {
    const std::string& name = slots_[slot].name;
    if (name.ends_with(".scales")) return true;
    return name.ends_with(kind == Operand::int4 ? ".codes" : ".quants");
  }

  bool poisoned() const {
    return std::any_of(pieces_.begin(), pieces_.end(), [](const Piece& p) { return p.poisoned; });
  }

  void check_builders() const {
    for (size_t i = 0; i < pieces_.size(); ++i)
      if (pieces_[i].given && pieces_[i].builder != b_)
        throw Refusal{ErrorKind::attr, slots_[i].name,
                      slots_[i].name + " is of builder '" + pieces_[i].builder->label +
                          "' and must be of builder '" + b_->label + "', as the first operand is"};
  }

  void fill_attrs() {
    for (const AttrSpec& spec : def_.attrs) {
      Attr a;
      if (auto it = args_.find(spec.name); it != args_.end() && it->second.set) a = it->second;
      else if (spec.required)
        throw Refusal{ErrorKind::attr, spec.name,
                      std::string(spec.name) + " is None and must be given"};
      else a = fallback(spec);
      call_.attrs.push_back(std::move(a));
      args_.erase(spec.name);
    }
    for (const auto& [name, a] : args_)
      ACCEL_CHECK(!a.set && "an attribute that the operator does not have");
  }

  // The default as the definition writes it; "None" leaves it unset.
  static Attr fallback(const AttrSpec& spec) {
    Attr a;
    const std::string text = spec.fallback ? spec.fallback : "None";
    if (text == "None") return a;
    a.set = true;
    switch (spec.type) {
      case AttrType::integer:
        a.i = std::atoll(text.c_str());
        break;
      case AttrType::real:
        a.f = std::strtof(text.c_str(), nullptr);
        break;
      case AttrType::flag:
        a.b = text == "True";
        break;
      default:
        a.s = text.substr(1, text.size() - 2);
        break;
    }
    return a;
  }

  void fill_inputs() {
    for (const Piece& p : pieces_) {
      In in;
      if (p.given) {
        in.present = true;
        in.state = p.view->state;
        in.dtype = p.view->dtype;
        in.shape = p.view->shape;
        in.strides = p.view->strides;
        in.offset = p.view->offset;
      }
      call_.in.push_back(std::move(in));
    }
    for (const Operand& o : operands_)
      if (o.kind == Operand::int4) call_.weights = o.i.weights, call_.group = o.i.group;
  }

  void check_layout() const {
    if (def_.views || def_.packs) return;
    for (size_t i = 0; i < call_.in.size(); ++i) {
      const In& in = call_.in[i];
      if (!in.present || in.contiguous()) continue;
      throw Refusal{ErrorKind::shape, slots_[i].name,
                    slots_[i].name + " is " + name_of(in.dtype) + in.shape.to_string() +
                        " with strides " + text_of(in.strides) + " and offset " +
                        std::to_string(in.offset) + " and must be contiguous; contiguous(" +
                        slots_[i].name + ") makes it so"};
    }
  }

  void check_results() const {
    ACCEL_CHECK(int(call_.results.size()) == results_of(def_));
    for (const Type& t : call_.results)
      if (!t.shape.fits())
        throw Refusal{
            ErrorKind::shape, "result",
            "result is " + t.shape.to_string() + " and must have at most 2^63-1 elements"};
  }

  void resolve_scalars(bool late) {
    for (size_t i = 0; i < def_.attrs.size(); ++i) {
      const AttrSpec& spec = def_.attrs[i];
      Attr& a = call_.attrs[i];
      if (!a.set || spec.late != late ||
          (spec.type != AttrType::scalar_f32 && spec.type != AttrType::scalar_u32))
        continue;
      const ScalarKind kind = spec.type == AttrType::scalar_f32 ? ScalarKind::F32 : ScalarKind::U32;
      a.scalar = b_->find_scalar(a.s);
      if (a.scalar < 0)
        throw Refusal{ErrorKind::attr, spec.name,
                      std::string(spec.name) + " is '" + a.s + "' and must be a declared " +
                          name_of(kind) + " scalar"};
      const ScalarKind is = b_->graph.scalars[size_t(a.scalar)].kind;
      if (is != kind)
        throw Refusal{ErrorKind::attr, spec.name,
                      std::string(spec.name) + " is '" + a.s + "', a scalar of kind " +
                          name_of(is) + ", and must be of kind " + name_of(kind)};
    }
  }

  void check_stale() const {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (!pieces_[i].given || !pieces_[i].view->state) continue;
      const std::string why = stale_text(*b_, pieces_[i].view->source);
      if (!why.empty()) throw Refusal{ErrorKind::attr, slots_[i].name, slots_[i].name + " " + why};
    }
  }

  // As many poisoned tensors as the operator gives: none where it only writes a state.
  Recorded poison() const {
    Recorded r;
    for (int i = 0; i < results_of(def_); ++i) r.values.push_back(Tensor::poison(b_));
    r.state = State::poison(b_);
    return r;
  }

  Recorded commit() {
    if (def_.segments >= 0 && pieces_[size_t(def_.segments)].given) add_offsets();
    Node node;
    node.id = int(b_->graph.nodes.size()) + 1;
    node.def = &def_;
    node.site = site_;
    for (const Piece& p : pieces_)
      node.in.push_back(p.given ? std::optional<View>(*p.view) : std::nullopt);
    for (const Attr& a : call_.attrs)
      if (a.scalar >= 0) b_->scalar_used[size_t(a.scalar)] = true;
    Recorded out;
    for (size_t i = 0; i < call_.results.size(); ++i) out.values.push_back(result(node.id, int(i)));
    if (def_.writes >= 0) {
      View next = *node.in[size_t(def_.writes)];
      node.written_version = ++next.source.version;
      b_->writes.push_back({next.source.port, next.source.begin,
                            next.source.begin + next.source.count, next.source.version});
      out.state = State(b_, std::move(next));
    }
    node.call = std::move(call_);
    b_->graph.nodes.push_back(std::move(node));
    return out;
  }

  // The last slot: the running sums of the counts or extents, one node for all that read them.
  void add_offsets() {
    const View& counts = *pieces_[size_t(def_.segments)].view;
    const int64_t total = call_.in[0].shape[0];
    offsets_ = offsets_of(b_, counts, total, site_);
    pieces_.back() = piece(offsets_);
    In& in = call_.in.back();
    in.present = true;
    in.dtype = offsets_.view().dtype;
    in.shape = offsets_.view().shape;
    in.strides = offsets_.view().strides;
  }

  Tensor result(int node, int index) const {
    const Type& t = call_.results[size_t(index)];
    View v;
    v.dtype = t.dtype;
    v.shape = t.shape;
    v.strides = contiguous_strides(t.shape);
    v.source.node = node;
    v.source.result = index;
    v.source.count = t.shape.elements();
    return Tensor(b_, std::move(v));
  }

  const OpDef& def_;
  std::vector<Slot> slots_;
  const std::vector<Operand>& operands_;
  AttrArgs args_;
  Site site_;
  std::vector<Piece> pieces_;
  BuilderPtr b_;
  Call call_;
  Tensor offsets_;
};

}  // namespace

Recorded Builder::record(Op op, const std::vector<Operand>& operands, AttrArgs attrs, Site site) {
  return Recording(op, operands, std::move(attrs), std::move(site)).run();
}

}  // namespace accel
