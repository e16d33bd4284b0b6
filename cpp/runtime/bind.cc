// Bindings: every check that a set of buffers and scalars must pass, and the operand table made
// from it.
#include <algorithm>

#include "exec/fork.h"
#include "runtime/plan_impl.h"

namespace accel {

// ------------------------------------------------------------------------------------------------
// checks

std::string Plan::Impl::port_text(int port) const {
  const PortDesc& d = data.graph.ports[size_t(port)];
  return std::string(name_of(d.kind)) + " " + d.name;
}

static std::string type_of(const PortDesc& port) {
  return Type{port.dtype, port.shape}.to_string();
}

int Plan::Impl::port_of(const std::string& name, Problems& problems) const {
  if (const auto at = port_index.find(name); at != port_index.end()) return at->second;
  const bool scalar = scalar_index.count(name);
  problems.push_back({"unknown", name,
                      (scalar ? "scalar " + name + " is bound to a buffer" : name + " is bound") +
                          " and must be a port of " + labelled("plan", data.label) +
                          " (plan.ports() lists them)"});
  return -1;
}

void Plan::Impl::check_view(int port, const BufferView& view, Problems& problems) const {
  check_plane(port, view, problems);
  if (!view.buffer || view.buffer->closed()) return;
  const PortDesc& d = data.graph.ports[size_t(port)];
  const std::string& layout = view.buffer->layout;
  if (layout == d.layout) return;
  problems.push_back({"layout", d.name,
                      port_text(port) + " is laid out " + layout + " and must be " + d.layout +
                          (d.layout == "plain" ? ", as plan.pack was given it"
                                               : "; plan.pack makes such a buffer")});
}

void Plan::Impl::check_plane(int port, const BufferView& view, Problems& problems) const {
  const PortDesc& d = data.graph.ports[size_t(port)];
  const auto problem = [&](const char* code, const std::string& is_and_must) {
    problems.push_back({code, d.name, port_text(port) + " is " + is_and_must});
  };
  if (!view.buffer) return problem("unbound", "unbound and must be " + type_of(d));
  const Buffer& b = *view.buffer;
  if (b.closed()) return problem("lifetime", "a closed buffer and must be open");
  if (b.device() != runtime->device())
    problem("foreign", "a buffer of another device and must be one of the plan's device");
  if (view.dtype != d.dtype)
    problem("dtype", std::string(name_of(view.dtype)) + " and must be " + name_of(d.dtype));
  // In elements before any product, so that no offset wraps into range.
  const int64_t holds = b.bytes() / size_of(view.dtype), need = d.shape.elements();
  if (view.offset < 0 || view.count < 0 || view.offset > holds || view.count > holds - view.offset)
    problem("too_small", "the range [" + std::to_string(view.offset) + ", +" +
                             std::to_string(view.count) + ") of a buffer of " +
                             std::to_string(holds) + " elements and must lie inside it");
  else if (view.dtype == d.dtype && view.count < need)
    problem("too_small", std::to_string(view.count) + " elements and must be at least " +
                             std::to_string(need) + " (" + type_of(d) + ")");
  if (uses[size_t(port)].written && !b.writable)
    problem("read_only", "read-only and must be writable: the plan writes it");
  const auto at = reinterpret_cast<uintptr_t>(b.address()) +
                  uintptr_t(view.offset) * uintptr_t(size_of(view.dtype));
  if (view.dtype == d.dtype && at % uintptr_t(size_of(d.dtype)))
    problem("alignment", "at an address that is no multiple of " +
                             std::to_string(size_of(d.dtype)) +
                             " and must be aligned to its elements");
}

bool Plan::Impl::check_scalar(const std::string& name, const ScalarValue& value,
                              Problems& problems) const {
  const auto at = scalar_index.find(name);
  if (at == scalar_index.end()) {
    problems.push_back({"unknown", name,
                        "scalar " + name + " is given and must be a scalar of " +
                            labelled("plan", data.label) + " (plan.scalars() lists them)"});
    return false;
  }
  const ScalarKind want = data.graph.scalars[size_t(at->second)].kind;
  if (value.kind == want) return true;
  problems.push_back(
      {"kind", name,
       "scalar " + name + " is " + name_of(value.kind) + " and must be " + name_of(want)});
  return false;
}

// -------------------------------------------------------------------------------------------------
// overlap

namespace {
struct Span {
  uintptr_t begin, end;
  int port;
  bool written;
};
bool clash(const Span& a, const Span& b) {
  return a.port != b.port && (a.written || b.written) && a.begin < b.end && b.begin < a.end;
}
}  // namespace

static Span span_of(const Plan::Impl& p, const BindingTable& table, int slot) {
  const PortSlot& s = p.data.slots[size_t(slot)];
  const int64_t size = size_of(p.data.graph.ports[size_t(s.port)].dtype);
  const uintptr_t begin =
      reinterpret_cast<uintptr_t>(table.base[size_t(s.port)]) + uintptr_t(s.begin * size);
  return {begin, begin + uintptr_t(s.count * size), s.port, p.uses[size_t(s.port)].written};
}

// One problem a pair of ports, under the name of the written one.
static void add_clash(const Plan::Impl& p, const Span& a, const Span& b,
                      std::vector<Problem>& problems) {
  const bool in_order = a.written && (!b.written || a.port < b.port);
  const Span& first = in_order ? a : b;
  const Span& second = in_order ? b : a;
  const uintptr_t bytes = std::min(a.end, b.end) - std::max(a.begin, b.begin);
  const std::string start = p.port_text(first.port) + " shares ";
  const std::string rest =
      " bytes with " + p.port_text(second.port) + " and must be apart from it: ";
  for (const Problem& q : problems)
    if (q.code == "overlap" && q.message.starts_with(start) &&
        q.message.find(rest) != std::string::npos)
      return;
  problems.push_back({"overlap", p.data.graph.ports[size_t(first.port)].name,
                      start + std::to_string(bytes) + rest + "outputs and states may be written, " +
                          (second.written ? "and both are such" : "and the first is one")});
}

void Plan::Impl::check_overlaps_of(const BindingTable& table, int port, Problems& problems) const {
  for (const int slot : uses[size_t(port)].slots) {
    const Span mine = span_of(*this, table, slot);
    for (size_t s = 0; s < data.slots.size(); ++s) {
      if (!table.base[size_t(data.slots[s].port)]) continue;
      const Span other = span_of(*this, table, int(s));
      if (clash(mine, other)) add_clash(*this, mine, other, problems);
    }
  }
}

void Plan::Impl::check_all_overlaps(const BindingTable& table, Problems& problems) const {
  std::vector<Span> spans;
  spans.reserve(data.slots.size());
  for (size_t s = 0; s < data.slots.size(); ++s)
    if (table.base[size_t(data.slots[s].port)]) spans.push_back(span_of(*this, table, int(s)));
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < spans.size(); ++i)
    for (size_t j = i + 1; j < spans.size() && spans[j].begin < spans[i].end; ++j)
      if (clash(spans[i], spans[j])) add_clash(*this, spans[i], spans[j], problems);
}

// ------------------------------------------------------------------------------------------------
// bind

void Plan::Impl::put(BindingTable& table, int port, const BufferView& view) const {
  // As a number: a buffer that closes just now gives null, which submit finds out.
  const auto at = reinterpret_cast<uintptr_t>(view.buffer->address()) +
                  uintptr_t(view.offset * size_of(view.dtype));
  table.base[size_t(port)] = reinterpret_cast<char*>(at);
  table.views[size_t(port)] = view;
  for (Operands& operands : table.operands)
    if (!operands.entries.empty())
      for (const PortUse::Patch& patch : uses[size_t(port)].patches)
        operands.entries[patch.entry] = reinterpret_cast<void*>(at + uintptr_t(patch.offset));
}

const Operands& Plan::Impl::operands_for(BindingTable& table, size_t instance, void* arena) const {
  if (table.operands.size() <= instance) table.operands.resize(instance + 1);
  Operands& made = table.operands[instance];
  if (made.entries.size() == n_entries && made.arena == arena) return made;
  std::vector<void*> entries(n_entries);
  for (const PortUse::Patch& p : arena_entries)
    entries[p.entry] = static_cast<char*>(arena) + p.offset;
  const Program& program = *instances[instance]->program;
  for (const PortUse::Patch& p : table_entries)
    entries[p.entry] = program.table_address(int(p.offset));
  for (size_t port = 0; port < uses.size(); ++port) {
    const auto base = reinterpret_cast<uintptr_t>(table.base[port]);
    for (const PortUse::Patch& p : uses[port].patches)
      entries[p.entry] = reinterpret_cast<void*>(base + uintptr_t(p.offset));
  }
  made = {std::move(entries), arena};
  return made;
}

static void add_holds(const BindingTable& table) {
  std::vector<BufferPtr> buffers;
  buffers.reserve(table.views.size());
  for (const BufferView& v : table.views) buffers.push_back(v.buffer);
  Buffer::add_hold(buffers, table.hold);
}

TablePtr Plan::Impl::bind_buffers(const BindingMap& buffers, Problems& problems) const {
  auto table = std::make_shared<BindingTable>();
  // Before the first look at a buffer: one that closes meanwhile is found at submit.
  table->open_under = close_generation().load(std::memory_order_seq_cst);
  const size_t n = data.graph.ports.size();
  table->views.resize(n);
  table->base.resize(n);
  const size_t before = problems.size();
  for (const auto& [name, view] : buffers)
    if (const int port = port_of(name, problems); port >= 0) {
      const size_t seen = problems.size();
      check_view(port, view, problems);
      if (problems.size() == seen) put(*table, port, view);
    }
  for (size_t i = 0; i < n; ++i)
    if (!buffers.count(data.graph.ports[i].name)) check_view(int(i), BufferView{}, problems);
  check_all_overlaps(*table, problems);
  if (problems.size() == before) add_holds(*table);
  return table;
}

std::vector<uint32_t> Plan::Impl::bind_scalars(const ScalarMap& values, Problems& problems) const {
  std::vector<uint32_t> bits(data.graph.scalars.size());
  for (const auto& [name, value] : values)
    if (check_scalar(name, value, problems)) bits[size_t(scalar_index.at(name))] = value.bits();
  for (const ScalarDesc& s : data.graph.scalars)
    if (!values.count(s.name))
      problems.push_back(
          {"unbound", s.name, "scalar " + s.name + " is unbound and must be " + name_of(s.kind)});
  return bits;
}

std::shared_ptr<Bindings> Plan::bind(const BindingMap& buffers, const ScalarMap& scalars) {
  p_->runtime->device()->check_alive();
  if (closed())
    throw bind_error("lifetime", "plan", labelled("plan", label()) + " is closed and must be open");
  Impl::Problems problems;
  auto impl = std::make_shared<Bindings::Impl>();
  impl->plan = shared_from_this();
  impl->table = p_->bind_buffers(buffers, problems);
  impl->scalars = p_->bind_scalars(scalars, problems);
  if (!problems.empty()) throw bind_error(std::move(problems));
  {
    // Here, so that the first submission allocates nothing; a plan that closes meanwhile has none.
    std::lock_guard<std::mutex> lock(p_->mutex);
    if (!p_->closed.load())
      p_->operands_for(*impl->table, 0, p_->instances[0]->program->arena().get());
  }
  auto bound = std::make_shared<Bindings>();
  bound->p_ = std::move(impl);
  return bound;
}

// ------------------------------------------------------------------------------------------------
// Bindings

// A table that may be changed: the one given, or a copy while a submission holds it.
static TablePtr writable(const TablePtr& table) {
  if (table->hold->in_flight.load(std::memory_order_acquire) == 0) return table;
  auto copy = std::make_shared<BindingTable>(*table);
  copy->hold = std::make_shared<Hold>();
  add_holds(*copy);
  return copy;
}

namespace {

using Changes = std::vector<std::pair<int, const BufferView*>>;

// Puts views into a table; unless commit() is reached, puts the old ones back.
class Exchange {
 public:
  Exchange(const Plan::Impl& p, TablePtr table, const Changes& changes)
      : p_(p), table_(std::move(table)) {
    for (const auto& [port, view] : changes) {
      ports_.push_back(port);
      old_.push_back(table_->views[size_t(port)]);
      added_.push_back(view->buffer);
    }
    Buffer::add_hold(added_, table_->hold);
    for (const auto& [port, view] : changes) p_.put(*table_, port, *view);
  }
  ~Exchange() {
    for (size_t i = 0; i < ports_.size(); ++i) {
      if (!committed_) p_.put(*table_, ports_[i], old_[i]);
      (committed_ ? old_[i].buffer : added_[i])->remove_hold(table_->hold);
    }
  }
  void commit() { committed_ = true; }

 private:
  const Plan::Impl& p_;
  const TablePtr table_;
  std::vector<int> ports_;
  std::vector<BufferView> old_;
  std::vector<BufferPtr> added_;
  bool committed_ = false;
};

}  // namespace

void Bindings::update(const BindingMap& buffers, const ScalarMap& scalars) {
  check_fork();
  const Plan::Impl& p = *p_->plan->p_;
  if (p.closed.load())
    throw bind_error("lifetime", "plan",
                     labelled("plan", p.data.label) + " is closed and must be open");
  Plan::Impl::Problems problems;
  Changes changes;
  for (const auto& [name, view] : buffers)
    if (const int port = p.port_of(name, problems); port >= 0) {
      p.check_view(port, view, problems);
      changes.emplace_back(port, &view);
    }
  for (const auto& [name, value] : scalars) p.check_scalar(name, value, problems);
  if (!problems.empty()) throw bind_error(std::move(problems));
  if (!changes.empty()) {
    const TablePtr table = writable(p_->table);
    Exchange exchange(p, table, changes);
    for (const auto& change : changes) p.check_overlaps_of(*table, change.first, problems);
    if (!problems.empty()) throw bind_error(std::move(problems));
    exchange.commit();
    p_->table = table;
  }
  for (const auto& [name, value] : scalars)
    p_->scalars[size_t(p.scalar_index.at(name))] = value.bits();
}

void Bindings::set(const std::string& name, const BufferView& value) {
  update({{name, value}}, {});
}

void Bindings::set_scalar(const std::string& name, ScalarValue value) {
  check_fork();
  const Plan::Impl& p = *p_->plan->p_;
  Plan::Impl::Problems problems;
  if (!p.check_scalar(name, value, problems)) throw bind_error(std::move(problems));
  p_->scalars[size_t(p.scalar_index.at(name))] = value.bits();
}

const PlanPtr& Bindings::plan() const {
  return p_->plan;
}

}  // namespace accel
