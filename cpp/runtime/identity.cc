#include "runtime/identity.h"

#include <bit>

#include "exec/fork.h"
#include "runtime/runtime.h"

namespace accel {

namespace {

// Every field is its length in eight bytes, low byte first, and then its bytes.
class Fields {
 public:
  explicit Fields(std::string_view tag) { text(tag); }
  Fields& text(std::string_view value) {
    put(value.size());
    bytes_ += value;
    return *this;
  }
  Fields& number(int64_t value) {
    put(8);
    put(uint64_t(value));
    return *this;
  }
  // How many there are comes first, so that no two lists run into each other.
  Fields& numbers(const std::vector<int64_t>& values) {
    number(int64_t(values.size()));
    for (const int64_t v : values) number(v);
    return *this;
  }
  IdentityPart part() && {
    const Digest digest = sha256(bytes_);
    return {std::move(bytes_), digest};
  }

 private:
  void put(uint64_t value) {
    for (int i = 0; i < 8; ++i) bytes_ += char(uint8_t(value >> 8 * i));
  }
  std::string bytes_;
};

}  // namespace

// ------------------------------------------------------------------------------------------------
// semantic

static void add_view(Fields& f, const View& v) {
  f.text(name_of(v.dtype)).numbers(v.shape.dims()).numbers(v.strides).number(v.offset);
  f.number(v.source.node).number(v.source.result);
  f.number(v.source.port).number(v.source.begin).number(v.source.count).number(v.state);
}

static void add_attr(Fields& f, const AttrSpec& spec, const Attr& a, const Graph& graph) {
  f.text(spec.name).number(a.set);
  if (!a.set) return;
  switch (spec.type) {
    case AttrType::integer:
      f.number(a.i);
      return;
    case AttrType::real:
      f.number(std::bit_cast<uint32_t>(a.f));
      return;
    case AttrType::text:
      f.text(a.s);
      return;
    case AttrType::flag:
      f.number(a.b);
      return;
    case AttrType::dtype:
      f.text(name_of(a.dtype));
      return;
    case AttrType::ints:
      f.numbers(a.v);
      return;
    case AttrType::scalar_f32:
    case AttrType::scalar_u32:
      f.text(a.scalar < 0 ? a.s : graph.scalars[size_t(a.scalar)].name);
      return;
  }
}

static void add_node(Fields& f, const Node& node, const Graph& graph) {
  f.text(node.def->name).number(int64_t(node.in.size()));
  for (const auto& in : node.in) {
    f.number(in.has_value());
    if (in) add_view(f, *in);
  }
  f.number(int64_t(node.call.results.size()));
  for (const Type& t : node.call.results) {
    f.text(name_of(t.dtype)).numbers(t.shape.dims());
    f.numbers(contiguous_strides(t.shape)).number(0);
  }
  const View* written = node.def->writes < 0 ? nullptr : &*node.in[size_t(node.def->writes)];
  f.number(written != nullptr);
  if (written) f.text(graph.ports[size_t(written->source.port)].name).number(written->source.begin);
  for (size_t i = 0; i < node.call.attrs.size(); ++i)
    add_attr(f, node.def->attrs[i], node.call.attrs[i], graph);
  f.number(node.call.weights).number(node.call.group);
}

static IdentityPart semantic_part(const Graph& graph) {
  Fields f("accel.semantic.1");
  f.number(int64_t(graph.ports.size()));
  for (const PortDesc& p : graph.ports)
    f.text(p.name).text(name_of(p.kind)).text(name_of(p.dtype)).numbers(p.shape.dims());
  f.number(int64_t(graph.scalars.size()));
  for (const ScalarDesc& s : graph.scalars) f.text(s.name).text(name_of(s.kind));
  f.number(int64_t(graph.nodes.size()));
  for (const Node& node : graph.nodes) add_node(f, node, graph);
  f.number(int64_t(graph.outputs.size()));
  for (const Output& o : graph.outputs) {
    f.text(graph.ports[size_t(o.port)].name);
    add_view(f, o.value);
  }
  return std::move(f).part();
}

// ------------------------------------------------------------------------------------------------
// numerical, deployment

static IdentityPart numerical_part(const PlanData& p, const Device& device) {
  // By node. Copies that a later pass adds move bytes and have no order.
  std::vector<const KernelRow*> rows(p.graph.nodes.size());
  std::vector<const Call*> calls(p.graph.nodes.size());
  for (const Step& step : p.steps)
    if (step.node > 0 && step.def == p.graph.node(step.node).def && !rows[size_t(step.node - 1)]) {
      rows[size_t(step.node - 1)] = step.row;
      calls[size_t(step.node - 1)] = &step.call;
    }
  Fields f("accel.numerical.1");
  f.text(device.info().level).number(int64_t(rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    const KernelRow* row = rows[i];
    f.text(row ? row->kernel : "none");
    if (!row) continue;
    f.text(device.kernel_digest(row->kernel)).text(row->order);
    const Blocks blocks = blocks_of(*calls[i]);
    f.number(blocks.size).number(blocks.count).number(blocks.splits);
  }
  return std::move(f).part();
}

IdentityPart deployment_of(const PlanData& p, const Device& device, const CompileOptions& options) {
  // Names every field of the options: a new one does not compile until it is part of the key or
  // left out on purpose.
  const auto& [label, progress, max_in_flight, pool, fuse, pack, naive, verify] = options;
  (void)label, (void)progress;  // change nothing about the plan
  Fields f("accel.deployment.1");
  const auto& id = device.info().id;
  f.text({reinterpret_cast<const char*>(id.data()), id.size()});
  f.text("max_in_flight").number(max_in_flight);
  f.text("pool").number(pool ? pool->serial() : 0);
  f.text("fuse").number(fuse);
  f.text("pack").number(pack);
  f.text("naive").number(naive);
  f.text("verify").number(verify);
  f.number(int64_t(p.graph.ports.size()));
  for (const PortDesc& port : p.graph.ports) f.text(port.layout);
  return std::move(f).part();
}

// ------------------------------------------------------------------------------------------------

Identity identity_of(const PlanData& selected, const Device& device, IdentityPart deployment) {
  return {semantic_part(selected.graph), numerical_part(selected, device), std::move(deployment)};
}

Identity identity(const Builder& builder, const CompileOptions& options) {
  check_fork();
  const RuntimePtr runtime = runtime_of(builder, "identity");
  check_compile_options("identity", options, runtime->device());
  Limits limits = runtime->device()->limits();
  limits.pack = options.pack;
  const PlanData selected = select_kernels(builder.finish(), limits);
  const Device& device = *runtime->device();
  return identity_of(selected, device, deployment_of(selected, device, options));
}

std::string Identity::hex() const {
  std::string all;
  for (const IdentityPart* part : {&semantic, &numerical, &deployment})
    all.append(reinterpret_cast<const char*>(part->digest.data()), part->digest.size());
  return hex_of(sha256(all)).substr(0, 16);
}

bool Identity::operator==(const Identity& other) const {
  return semantic.bytes == other.semantic.bytes && numerical.bytes == other.numerical.bytes &&
         deployment.bytes == other.deployment.bytes;
}

}  // namespace accel
