// Ports, scalars, outputs and handles: what a builder knows besides its nodes.
#include "graph/builder.h"

#include <algorithm>

#include "graph/builder_state.h"

namespace accel {

const char* name_of(PortKind k) {
  static const char* const names[] = {"input", "weight", "state", "output"};
  return names[int(k)];
}
const char* name_of(ScalarKind k) {
  return k == ScalarKind::U32 ? "u32" : "f32";
}

int BuilderState::find_scalar(const std::string& name) const {
  for (size_t i = 0; i < graph.scalars.size(); ++i)
    if (graph.scalars[i].name == name) return int(i);
  return -1;
}
int BuilderState::find_port(const std::string& name) const {
  for (size_t i = 0; i < graph.ports.size(); ++i)
    if (graph.ports[i].name == name) return int(i);
  return -1;
}

void add_refusal(const BuilderPtr& b, const std::string& op, const Refusal& r, const Site& site) {
  b->diagnostics.push_back({r.kind, op, r.operand, op + ": " + r.message, site});
}

std::string stale_text(const BuilderState& b, const Source& s) {
  int newest = s.version, newer = 0;
  for (const StateWrite& w : b.writes) {
    if (w.port != s.port || w.end <= s.begin || w.begin >= s.begin + s.count) continue;
    if (w.version <= s.version) continue;
    newest = std::max(newest, w.version);
    ++newer;
  }
  if (!newer) return "";
  return "is version " + std::to_string(s.version) + " of state '" +
         b.graph.ports[size_t(s.port)].name + "', " + std::to_string(newer) +
         (newer == 1 ? " write ago," : " writes ago,") + " and must be version " +
         std::to_string(newest);
}

// ---------------------------------------------------------------- handles

[[noreturn]] static void throw_collected(const BuilderPtr& b, const char* what) {
  if (!b || b->diagnostics.empty())
    throw attr_error(what, what, std::string(what) + " is null and must be a recorded value");
  throw graph_error(b->diagnostics);
}

DType Tensor::dtype() const {
  if (!valid()) throw_collected(builder_, "tensor");
  return view_.dtype;
}
const Shape& Tensor::shape() const {
  if (!valid()) throw_collected(builder_, "tensor");
  return view_.shape;
}
std::string Tensor::to_string() const {
  if (null()) return "<null tensor>";
  return valid() ? view_.type().to_string() : "<invalid tensor>";
}

DType State::dtype() const {
  if (!valid()) throw_collected(builder_, "state");
  return view_.dtype;
}
const Shape& State::shape() const {
  if (!valid()) throw_collected(builder_, "state");
  return view_.shape;
}
const std::string& State::name() const {
  if (!valid()) throw_collected(builder_, "state");
  return builder_->graph.ports[size_t(view_.source.port)].name;
}
int State::version() const {
  if (!valid()) throw_collected(builder_, "state");
  return view_.source.version;
}
std::string State::to_string() const {
  if (null()) return "<null state>";
  if (!valid()) return "<invalid state>";
  return view_.type().to_string() + " state " + name() + " version " + std::to_string(version());
}

// ---------------------------------------------------------------- declarations

Builder::Builder(std::string label, std::shared_ptr<void> runtime)
    : p_(std::make_shared<BuilderState>()) {
  p_->label = std::move(label);
  p_->runtime = std::move(runtime);
}

const std::string& Builder::label() const {
  return p_->label;
}
const std::shared_ptr<void>& Builder::runtime() const {
  return p_->runtime;
}

void Builder::refuse(const BuilderPtr& b, Diagnostic d) {
  b->diagnostics.push_back(std::move(d));
}

std::optional<Error> Builder::err() const {
  if (p_->diagnostics.empty()) return std::nullopt;
  return graph_error(p_->diagnostics);
}

static std::string quoted(const std::string& s) {
  return "'" + s + "'";
}

// Throws a Refusal for a bad name or shape of a new port.
static void check_port(const BuilderState& b, const std::string& name, const Shape* shape) {
  if (name.empty()) throw Refusal{ErrorKind::attr, "name", "name is '' and must not be empty"};
  const int taken = b.find_port(name);
  if (taken >= 0)
    throw Refusal{ErrorKind::attr, "name",
                  "name is " + quoted(name) + " and must be new; " +
                      name_of(b.graph.ports[size_t(taken)].kind) + " " + quoted(name) + " has it"};
  if (!shape) return;
  if (shape->rank() == 0)
    throw Refusal{ErrorKind::shape, "shape", "shape is [] and must have an axis; a scalar is [1]"};
  for (int i = 0; i < shape->rank(); ++i)
    if ((*shape)[i] <= 0)
      throw Refusal{ErrorKind::shape, "shape",
                    "shape is " + shape->to_string() + ", axis " + std::to_string(i) + " is " +
                        std::to_string((*shape)[i]) + " and must be positive"};
  if (!shape->fits())
    throw Refusal{ErrorKind::shape, "shape",
                  "shape is " + shape->to_string() + " and must have at most 2^63-1 elements"};
}

// Declares a port, or records why not and gives -1.
static int declare(const BuilderPtr& b, PortDesc port) {
  const char* const op = name_of(port.kind);
  try {
    check_port(*b, port.name, &port.shape);
  } catch (const Refusal& r) {
    add_refusal(b, op, r, port.site);
    return -1;
  }
  b->graph.ports.push_back(std::move(port));
  return int(b->graph.ports.size()) - 1;
}

static View port_view(const BuilderPtr& b, int port) {
  const PortDesc& p = b->graph.ports[size_t(port)];
  View v;
  v.dtype = p.dtype;
  v.shape = p.shape;
  v.strides = contiguous_strides(p.shape);
  v.source.port = port;
  v.source.count = p.shape.elements();
  v.state = p.kind == PortKind::State;
  return v;
}

static Tensor declare_tensor(const BuilderPtr& b, PortDesc port) {
  const int index = declare(b, std::move(port));
  return index < 0 ? Tensor::poison(b) : Tensor(b, port_view(b, index));
}

Tensor Builder::input(const std::string& name, DType dtype, const Shape& shape, Site site) {
  return declare_tensor(p_, {name, PortKind::Input, dtype, shape, "plain", std::move(site)});
}
Tensor Builder::weight(const std::string& name, DType dtype, const Shape& shape, Site site) {
  return declare_tensor(p_, {name, PortKind::Weight, dtype, shape, "plain", std::move(site)});
}
State Builder::state(const std::string& name, DType dtype, const Shape& shape, Site site) {
  const int index = declare(p_, {name, PortKind::State, dtype, shape, "plain", std::move(site)});
  return index < 0 ? State::poison(p_) : State(p_, port_view(p_, index));
}

std::string Builder::scalar(const std::string& name, ScalarKind kind, Site site) {
  if (name.empty() || p_->find_scalar(name) >= 0) {
    const std::string why = name.empty()
                                ? "name is '' and must not be empty"
                                : "name is " + quoted(name) + " and must be new; a scalar has it";
    add_refusal(p_, "scalar", {ErrorKind::attr, "name", why}, site);
    return name;
  }
  p_->graph.scalars.push_back({name, kind, std::move(site)});
  p_->scalar_used.push_back(false);
  return name;
}

Int4 Builder::int4(const std::string& name, const Shape& shape, int64_t group, bool affine,
                   DType dtype, Site site) {
  Int4 bundle;
  bundle.group = group;
  bundle.codes = bundle.scales = bundle.zeros = Tensor::poison(p_);
  try {
    check_port(*p_, name.empty() ? "" : name + ".codes", &shape);
    if (group != 32 && group != 64 && group != 128)
      throw Refusal{ErrorKind::attr, "group",
                    "group is " + std::to_string(group) + " and must be 32, 64 or 128"};
    if (dtype != DType::F16 && dtype != DType::BF16 && dtype != DType::F32)
      throw Refusal{ErrorKind::dtype, "dtype",
                    std::string("dtype is ") + name_of(dtype) + " and must be f16, bf16 or f32"};
  } catch (const Refusal& r) {
    add_refusal(p_, "int4", r, site);
    return bundle;
  }
  bundle.weights = shape.elements();
  const int64_t groups = (bundle.weights - 1) / group + 1;
  bundle.codes = weight(name + ".codes", DType::U32, Shape{(bundle.weights - 1) / 8 + 1}, site);
  bundle.scales = weight(name + ".scales", dtype, Shape{groups}, site);
  bundle.zeros = affine ? Tensor() : weight(name + ".zeros", dtype, Shape{groups}, site);
  if (affine) bundle.biases = weight(name + ".biases", dtype, Shape{groups}, site);
  return bundle;
}

Quantized Builder::quantized(const std::string& name, const Shape& shape, Site site) {
  try {
    check_port(*p_, name.empty() ? "" : name + ".quants", &shape);
  } catch (const Refusal& r) {
    add_refusal(p_, "quantized", r, site);
    return {Tensor::poison(p_), Tensor::poison(p_)};
  }
  const int64_t blocks = (shape.elements() - 1) / 32 + 1;
  return {weight(name + ".quants", DType::I8, shape, site),
          weight(name + ".scales", DType::F16, Shape{blocks}, site)};
}

// ---------------------------------------------------------------- outputs

// Throws a Refusal when a value cannot be an output (CONTRACT 6).
static void check_output(const BuilderState& b, const std::string& name, const View& v) {
  check_port(b, name, nullptr);
  if (v.source.port >= 0) {
    const PortDesc& port = b.graph.ports[size_t(v.source.port)];
    const std::string what = "t is " + std::string(name_of(port.kind)) + " " + quoted(port.name);
    throw Refusal{
        ErrorKind::attr, "t",
        port.kind == PortKind::State
            ? what + " and must be computed; the caller already owns the bytes of a state"
            : what + " or a view of it and must be computed; the plan would only copy it"};
  }
  if (!v.contiguous())
    throw Refusal{ErrorKind::attr, "t",
                  "t is " + v.type().to_string() + " with strides " + text_of(v.strides) +
                      " and offset " + std::to_string(v.offset) +
                      " and must be contiguous; contiguous(t) makes it so"};
}

void Builder::output(const std::string& name, const Tensor& t, Site site) {
  if (t.null()) {
    add_refusal(p_, "output", {ErrorKind::attr, "t", "t is None and must be a tensor"}, site);
    return;
  }
  if (!t.valid()) return;  // its mistake is recorded already
  if (t.builder() != p_) {
    add_refusal(p_, "output",
                {ErrorKind::attr, "t",
                 "t is of builder " + quoted(t.builder()->label) + " and must be of builder " +
                     quoted(p_->label)},
                site);
    return;
  }
  try {
    check_output(*p_, name, t.view());
  } catch (const Refusal& r) {
    add_refusal(p_, "output", r, site);
    return;
  }
  p_->graph.ports.push_back(
      {name, PortKind::Output, t.view().dtype, t.view().shape, "plain", site});
  p_->graph.outputs.push_back({int(p_->graph.ports.size()) - 1, t.view(), site});
}

// ---------------------------------------------------------------- the whole graph

// Ports and scalars that nothing uses (CONTRACT 6); a node counts whether or not its result is
// used.
static std::vector<Diagnostic> unused(const BuilderState& b) {
  std::vector<bool> used(b.graph.ports.size(), false);
  for (const Node& n : b.graph.nodes)
    for (const auto& in : n.in)
      if (in && in->source.port >= 0) used[size_t(in->source.port)] = true;
  std::vector<Diagnostic> found;
  for (size_t i = 0; i < used.size(); ++i) {
    const PortDesc& p = b.graph.ports[i];
    if (used[i] || p.kind == PortKind::Output) continue;
    const std::string op = name_of(p.kind);
    found.push_back({ErrorKind::attr, op, p.name,
                     op + ": " + quoted(p.name) + " is unused and must be used", p.site});
  }
  for (size_t i = 0; i < b.graph.scalars.size(); ++i) {
    if (b.scalar_used[i]) continue;
    const ScalarDesc& s = b.graph.scalars[i];
    found.push_back({ErrorKind::attr, "scalar", s.name,
                     "scalar: " + quoted(s.name) + " is unused and must be used", s.site});
  }
  return found;
}

Graph Builder::finish() const {
  // With mistakes recorded, err() and compile give the same set: what a refused call named would
  // look unused.
  std::vector<Diagnostic> all = p_->diagnostics.empty() ? unused(*p_) : p_->diagnostics;
  if (all.empty() && p_->graph.outputs.empty() && p_->writes.empty())
    all.push_back({ErrorKind::attr,
                   "compile",
                   "graph",
                   "compile: graph '" + p_->label +
                       "' is without an output and without a state write and must have one",
                   {}});
  if (!all.empty()) throw graph_error(std::move(all));
  Graph graph = p_->graph;
  graph.label = p_->label;
  return graph;
}

}  // namespace accel
