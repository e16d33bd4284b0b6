// The walk over the graph: ports to doubles, nodes in record order, views by index, outputs and
// states back.
#include "oracle/oracle.h"

#include <algorithm>

#include "oracle/node.h"

namespace accel::oracle {

// ---------------------------------------------------------------- storage

static double load(DType t, const void* data, int64_t i) {
  switch (t) {
    case DType::F32:
      return double(static_cast<const float*>(data)[i]);
    case DType::F16:
      return double(f32_from_f16(static_cast<const uint16_t*>(data)[i]));
    case DType::BF16:
      return double(f32_from_bf16(static_cast<const uint16_t*>(data)[i]));
    case DType::I32:
      return double(static_cast<const int32_t*>(data)[i]);
    case DType::U32:
      return double(static_cast<const uint32_t*>(data)[i]);
    case DType::I8:
      return double(static_cast<const int8_t*>(data)[i]);
    case DType::U8:
      return double(static_cast<const uint8_t*>(data)[i]);
  }
  return 0;
}

// What a later node reads: a stored half is rounded once; f32 stays in double on the f64 level.
static void round_stored(DType t, std::vector<double>& v) {
  if (t != DType::F16) return;
  for (double& x : v) x = double(f32_from_f16(f16_from_f64(x)));
}

// The elements of a view in index order, by walking its coordinates.
static std::vector<double> gather(const View& view, const double* base) {
  const int rank = view.shape.rank();
  std::vector<double> out(static_cast<size_t>(view.shape.elements()));
  std::vector<int64_t> at(size_t(rank), 0);
  for (double& value : out) {
    int64_t index = view.offset;
    for (int axis = 0; axis < rank; ++axis) index += at[size_t(axis)] * view.strides[size_t(axis)];
    value = base[index];
    for (int axis = rank - 1; axis >= 0; --axis) {
      if (++at[size_t(axis)] < view.shape[axis]) break;
      at[size_t(axis)] = 0;
    }
  }
  return out;
}

// ---------------------------------------------------------------- arguments

int Args::slot(std::string_view name) const {
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].name == name) return int(i);
  ACCEL_CHECK(!"the operator has the slot that its oracle reads");
  return -1;
}

int Args::attr(std::string_view name) const {
  const auto& attrs = call.def->attrs;
  for (size_t i = 0; i < attrs.size(); ++i)
    if (attrs[i].name == name) return int(i);
  ACCEL_CHECK(!"the operator has the attribute that its oracle reads");
  return -1;
}

std::string_view Args::order() const {
  Limits limits;
  limits.backend = backend;
  limits.simd_groups = simd_groups;
  limits.matrix = matrix;
  if (matrix) limits.group_bytes = limits.max_bytes;
  limits.isa = level == Level::base ? "base" : "avx2";
  return select(call, limits, Site()).row->order;
}

using Eval = void (*)(Args&);
static Eval eval_of(Op op) {
  static const Eval table[] = {
#define OP(n) eval_##n,
#include "ops/list.inc"
#undef OP
  };
  return table[size_t(op)];
}

double depth_of(std::string_view order, double n) {
  if (n <= 0) return 0;
  if (order == "lane16") return std::ceil(n / 16) + 4;
  if (order == "lane128") return std::ceil(n / 128) + 7;
  if (order == "lane256") return std::ceil(n / 256) + 8;
  return n;  // one chain, the deepest order there is
}

// ---------------------------------------------------------------- the walk

namespace {

struct Walk {
  const Graph& graph;
  const Inputs& inputs;
  const Options& options;
  std::vector<std::vector<double>> memory, moved;                       // by port: values, budgets
  std::vector<std::vector<std::vector<double>>> exact, stored, budget;  // by node, result

  void load_ports();
  uint32_t scalar(int index) const;
  const double* base(const View& view) const;
  void run(const Node& node);
  Value output(const Output& o) const;
};

void Walk::load_ports() {
  memory.resize(graph.ports.size());
  moved.resize(graph.ports.size());
  for (size_t i = 0; i < graph.ports.size(); ++i) {
    const PortDesc& port = graph.ports[i];
    if (port.kind == PortKind::Output) continue;
    const auto it = inputs.ports.find(port.name);
    if (it == inputs.ports.end())
      throw bind_error("unbound", port.name, port.name + " is not given");
    const Bytes& bytes = it->second;
    if (bytes.dtype != port.dtype)
      throw bind_error(
          "dtype", port.name,
          port.name + " is " + name_of(bytes.dtype) + " and must be " + name_of(port.dtype));
    const int64_t n = port.shape.elements();
    if (bytes.count < n)
      throw bind_error("too_small", port.name,
                       port.name + " has " + std::to_string(bytes.count) +
                           " elements and must have " + std::to_string(n));
    memory[i].resize(size_t(n));
    if (options.budgets) moved[i].resize(size_t(n));
    for (int64_t k = 0; k < n; ++k) memory[i][size_t(k)] = load(port.dtype, bytes.data, k);
  }
}

uint32_t Walk::scalar(int index) const {
  if (index < 0) return 0;
  const std::string& name = graph.scalars[size_t(index)].name;
  const auto it = inputs.scalars.find(name);
  if (it == inputs.scalars.end())
    throw bind_error("unbound", name, "scalar " + name + " is not given");
  return it->second;
}

const double* Walk::base(const View& view) const {
  const Source& s = view.source;
  if (s.port >= 0) return memory[size_t(s.port)].data() + s.begin;
  return stored[size_t(s.node - 1)][size_t(s.result)].data();
}

void Walk::run(const Node& node) {
  Args a{node.call,
         slots_of(*node.def, node.in.size()),
         options.level,
         options.budgets,
         {},
         {},
         {},
         {},
         {},
         {},
         options.backend,
         options.simd_groups,
         options.matrix};
  std::vector<std::vector<double>> gathered(node.in.size());
  for (size_t i = 0; i < node.in.size(); ++i) {
    if (!node.in[i]) {
      a.in.emplace_back();
      continue;
    }
    const View& view = *node.in[i];
    const size_t n = size_t(view.shape.elements());
    if (int(i) == node.def->writes) {
      ACCEL_CHECK(view.source.port >= 0);
      const int64_t at = view.source.begin + view.offset;
      a.written = {memory[size_t(view.source.port)].data() + at, n};
      if (options.budgets) a.written_budget = {moved[size_t(view.source.port)].data() + at, n};
    }
    // Rows read from the very state that the node writes are those from before the write.
    const int w = node.def->writes;
    const bool own = w >= 0 && int(i) != w && view.source.port >= 0 &&
                     view.source.port == node.in[size_t(w)]->source.port;
    if (!own && is_contiguous(view.shape, view.strides, 0)) {
      a.in.emplace_back(base(view) + view.offset, n);
    } else {
      gathered[i] = gather(view, base(view));
      a.in.emplace_back(gathered[i]);
    }
  }
  for (const Attr& attr : node.call.attrs) a.scalars.push_back(scalar(attr.scalar));
  for (const Type& type : node.call.results) {
    a.out.emplace_back(size_t(type.shape.elements()), 0.0);
    a.budget.emplace_back(options.budgets ? size_t(type.shape.elements()) : 0, 0.0);
  }
  eval_of(node.def->op)(a);
  exact.push_back(a.out);
  for (size_t i = 0; i < a.out.size(); ++i) round_stored(node.call.results[i].dtype, a.out[i]);
  stored.push_back(std::move(a.out));
  budget.push_back(std::move(a.budget));
}

Value Walk::output(const Output& o) const {
  Value value;
  value.type = o.value.type();
  const Source& s = o.value.source;
  if (s.port >= 0) {
    value.v = gather(o.value, memory[size_t(s.port)].data() + s.begin);
    if (options.budgets) value.budget.assign(value.v.size(), 0.0);
    return value;
  }
  value.v = gather(o.value, exact[size_t(s.node - 1)][size_t(s.result)].data());
  if (options.budgets)
    value.budget = gather(o.value, budget[size_t(s.node - 1)][size_t(s.result)].data());
  return value;
}

}  // namespace

std::map<std::string, Value> evaluate(const Graph& graph, const Inputs& inputs,
                                      const Options& options) {
  Walk walk{graph, inputs, options, {}, {}, {}, {}, {}};
  walk.load_ports();
  std::map<std::string, Value> result;
  for (const Node& node : graph.nodes) {
    walk.run(node);
    if (node.def->writes < 0) continue;
    const int port = node.in[size_t(node.def->writes)]->source.port;
    const PortDesc& desc = graph.ports[size_t(port)];
    result[desc.name].type = {desc.dtype, desc.shape};
  }
  for (auto& [name, value] : result)
    for (size_t i = 0; i < graph.ports.size(); ++i)
      if (graph.ports[i].name == name) {
        value.v = walk.memory[i];
        value.budget = walk.moved[i];
      }
  for (const Output& o : graph.outputs) result[graph.ports[size_t(o.port)].name] = walk.output(o);
  return result;
}

}  // namespace accel::oracle
