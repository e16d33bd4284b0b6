// Plan: compile, submit, close.
#include <bit>
#include <cmath>

#include "exec/fork.h"
#include "exec/release.h"
#include "plan/report.h"
#include "runtime/files.h"
#include "runtime/plan_impl.h"

namespace accel {

// ------------------------------------------------------------------------------------------------
// compile

namespace {
// Counts a plan before it is lowered, and no more if that fails.
struct CountedPlan {
  explicit CountedPlan(Runtime::Impl& r) : runtime(&r) { r.open_plan(); }
  ~CountedPlan() {
    if (runtime) runtime->close_plan();
  }
  Runtime::Impl* runtime;
};
}  // namespace

RuntimePtr runtime_of(const Builder& builder, const char* call) {
  const RuntimePtr runtime = std::static_pointer_cast<Runtime>(builder.runtime());
  if (!runtime)
    throw attr_error(
        call, "builder",
        std::string(call) + ": builder has no runtime and must be made by Runtime::new_builder");
  return runtime;
}

void check_compile_options(const char* call, const CompileOptions& options,
                           const DevicePtr& device) {
  if (options.max_in_flight < 1)
    throw attr_error(call, "max_in_flight",
                     std::string(call) + ": max_in_flight is " +
                         std::to_string(options.max_in_flight) + " and must be positive");
  if (!options.pool) return;
  if (options.pool->device() != device)
    throw bind_error(
        "foreign", "pool",
        options.pool->text() + " is of another device and must be of the runtime's device");
  if (options.pool->closed())
    throw bind_error("lifetime", "pool", options.pool->text() + " is closed and must be open");
}

// The graph as a whole is the first of the three checks; the planner reports the other two.
static Progress counted_on(const Progress& progress) {
  if (!progress) return {};
  return [&progress](const std::string& stage, int done, int total) {
    const int before = stage == "check" ? 1 : 0;
    progress(stage, done + before, total + before);
  };
}

PlanPtr Plan::compile(const Builder& builder, const CompileOptions& options) {
  check_fork();
  const RuntimePtr runtime = runtime_of(builder, "compile");
  check_compile_options("compile", options, runtime->device());
  if (options.progress) options.progress("check", 0, 3);
  Graph graph = builder.finish();
  if (options.progress) options.progress("check", 1, 3);
  if (!options.label.empty()) graph.label = options.label;
  CountedPlan lowering(
      *runtime->p_);  // a runtime that closes meanwhile is refused here, or refuses to close
  runtime->p_->built.fetch_add(1, std::memory_order_relaxed);
  const DevicePtr& device = runtime->device();
  Limits limits = device->limits();
  limits.pack = options.pack;
  limits.fuse &= options.fuse;
  PlanData data = options.naive ? make_naive_plan(std::move(graph), limits)
                                : make_plan(std::move(graph), limits, counted_on(options.progress),
                                            options.verify);
  return compile_data(runtime, std::move(data), options);
}

PlanPtr Plan::compile_data(const RuntimePtr& runtime, PlanData data,
                           const CompileOptions& options) {
  check_fork();
  check_compile_options("compile", options, runtime->device());
  if (options.pool) options.pool->check_idle();
  PlanPtr plan(new Plan);
  plan->p_ = std::make_shared<Impl>();
  Impl& p = *plan->p_;
  p.closed =
      true;  // until it is counted: the destructor of a failed compile has nothing to give back
  CountedPlan counted(*runtime->p_);
  runtime->p_->planned.fetch_add(1, std::memory_order_relaxed);
  p.runtime = runtime;
  p.data = std::move(data);
  p.identity.deployment = deployment_of(p.data, *runtime->device(), options);
  p.max_in_flight = options.max_in_flight;
  p.pool = options.pool;
  p.prepare();
  p.instances.push_back(std::make_unique<GraphInstance>());
  p.make_program(*p.instances[0]);
  runtime->p_->count_pipelines(p.data);
  counted.runtime = nullptr;  // the plan's own from here on
  p.closed = false;
  return plan;
}

void Plan::Impl::make_program(GraphInstance& instance) {
  instance.scalars.resize(data.graph.scalars.size());
  instance.table_bits.resize(data.tables.size());
  instance.table_filled.resize(data.tables.size());
  instance.program = runtime->device()->compile(data, pool);
}

void Plan::Impl::note_entry(const Place& place, size_t entry) {
  switch (place.kind) {
    case Place::none:
      return;
    case Place::arena:
      ACCEL_CHECK(place.offset >= 0 && place.offset + place.bytes <= data.memory.transient_bytes);
      arena_entries.push_back({entry, place.offset});
      return;
    case Place::table:
      ACCEL_CHECK(size_t(place.index) < data.tables.size());
      table_entries.push_back({entry, place.index});
      return;
    case Place::port: {
      ACCEL_CHECK(size_t(place.index) < data.slots.size());
      const PortSlot& slot = data.slots[size_t(place.index)];
      const int64_t size = size_of(data.graph.ports[size_t(slot.port)].dtype);
      ACCEL_CHECK(place.offset >= 0 && place.offset + place.bytes <= slot.count * size);
      uses[size_t(slot.port)].patches.push_back({entry, slot.begin * size + place.offset});
      return;
    }
  }
}

void Plan::Impl::prepare() {
  const Graph& g = data.graph;
  for (size_t i = 0; i < g.ports.size(); ++i) port_index.emplace(g.ports[i].name, int(i));
  for (size_t i = 0; i < g.scalars.size(); ++i) scalar_index.emplace(g.scalars[i].name, int(i));
  uses.resize(g.ports.size());
  for (size_t s = 0; s < data.slots.size(); ++s)
    uses[size_t(data.slots[s].port)].slots.push_back(int(s));
  // A state is read-write whatever this plan does with it (CONTRACT 6).
  for (size_t i = 0; i < uses.size(); ++i)
    uses[i].written = g.ports[i].kind == PortKind::State || g.ports[i].kind == PortKind::Output;
  for (const PortSlot& s : data.slots) ACCEL_CHECK(!s.written || uses[size_t(s.port)].written);
  for (const Command& c : data.commands)
    for (const Place& place : c.operands) note_entry(place, n_entries++);
}

// -------------------------------------------------------------------------------------------------
// submit

// f_k = f32(exp(-2k / rotary_dim * ln base)) in f64, rounded once (CONTRACT 11.3).
static void fill_frequencies(float* f, int64_t rotary_dim, float base) {
  const double ln_base = std::log(double(base));
  for (int64_t k = 0; k < rotary_dim / 2; ++k)
    f[k] = float(std::exp(-2.0 * double(k) / double(rotary_dim) * ln_base));
}

void Plan::Impl::fill_tables(GraphInstance& instance) {
  for (size_t i = 0; i < data.tables.size(); ++i) {
    const FrequencyTable& t = data.tables[i];
    const uint32_t bits = instance.scalars[size_t(t.scalar)];
    if (instance.table_filled[i] && instance.table_bits[i] == bits) continue;
    fill_frequencies(static_cast<float*>(instance.program->frequency_table(int(i))), t.rotary_dim,
                     std::bit_cast<float>(bits));
    instance.program->table_filled(int(i));
    instance.table_filled[i] = 1;
    instance.table_bits[i] = bits;
  }
}

namespace {

// Holds one graph instance and the bound buffers while a submission is in flight, or while one is
// being made.
struct Flight {
  Flight(PlanPtr of, Plan::Impl& impl, size_t at)
      : plan(std::move(of)), p(impl), index(at), instance(*impl.instances[at]) {}
  Flight(const Flight&) = delete;
  ~Flight() {
    if (table) table->hold->in_flight.fetch_sub(1, std::memory_order_seq_cst);
    instance.in_flight.store(false, std::memory_order_seq_cst);
    p.in_flight.fetch_sub(1, std::memory_order_seq_cst);
    released().notify();
    // The members go last: the plan's destructor may run here, on a library thread, and finds
    // nothing in flight.
  }
  // From here on the table stands and its buffers cannot close. Throws lifetime when one has
  // closed.
  void take(TablePtr t, const Graph& graph) {
    table = std::move(t);
    table->hold->in_flight.fetch_add(1, std::memory_order_seq_cst);
    if (close_generation().load(std::memory_order_seq_cst) == table->open_under) return;
    std::vector<Problem> problems;
    const auto lock = lifetime_lock();
    for (size_t i = 0; i < table->views.size(); ++i) {
      if (!table->views[i].buffer->closed()) continue;
      const PortDesc& port = graph.ports[i];
      problems.push_back({"lifetime", port.name,
                          std::string(name_of(port.kind)) + " " + port.name +
                              " is a closed buffer and must be open"});
    }
    if (!problems.empty()) throw bind_error(std::move(problems));
    table->open_under = close_generation().load(std::memory_order_seq_cst);
  }

  // With the plan's lock: what the run needs besides, so that it looks at nothing that may change.
  void prepare(const std::vector<uint32_t>& scalars) {
    if (!instance.program) p.make_program(instance);
    instance.scalars = scalars;  // same size: no allocation
    p.fill_tables(instance);
    arena = instance.program->arena();
    entries = p.operands_for(*table, index, arena.get()).entries.data();
    trace = p.trace;
  }
  std::optional<Error> run(Later& later) {
    Execution execution{entries, instance.scalars.data(), arena, table->views.data(), queue, later};
    if (!trace) return instance.program->run(execution);
    Trace::Run timed;
    timed.instance = int(index);
    timed.command_ns.reserve(p.data.commands.size() + 1);
    execution.command_ns = &timed.command_ns;
    auto error = instance.program->run(execution);
    trace->add(std::move(timed));
    return error;
  }

  const PlanPtr plan;
  Plan::Impl& p;
  const size_t index;
  GraphInstance& instance;
  TablePtr table;
  void* const* entries = nullptr;
  std::shared_ptr<void> arena;
  Queue* queue = nullptr;  // kept by its own work
  std::shared_ptr<Trace> trace;
};
using FlightPtr = std::shared_ptr<Flight>;

void check_queue(const Device* device, const QueuePtr& queue, const std::vector<FencePtr>& after) {
  if (queue->device.get() != device)
    throw bind_error(
        "foreign", "queue",
        labelled("queue", queue->label) + " is of another device and must be of the plan's");
  for (const FencePtr& fence : after)
    if (!fence)
      throw bind_error("unbound", "after", "after holds a missing fence and must hold fences only");
}

}  // namespace

// With the plan's lock: takes the slot, before anything is rebound.
static FlightPtr take_slot(const PlanPtr& plan, Plan::Impl& p) {
  const std::string name = labelled("plan", p.data.label);
  if (p.closed.load()) throw bind_error("lifetime", "plan", name + " is closed and must be open");
  size_t i = 0;
  while (i < p.instances.size() && p.instances[i]->in_flight.load(std::memory_order_acquire)) ++i;
  if (int64_t(i) == p.max_in_flight)
    throw bind_error("in_flight", "plan",
                     name + " has " + std::to_string(i) + " submission" + (i == 1 ? "" : "s") +
                         " in flight and may have at most " + std::to_string(i) +
                         " (max_in_flight): wait for a fence, or compile with a larger "
                         "max_in_flight");
  if (i == p.instances.size()) p.instances.push_back(std::make_unique<GraphInstance>());
  p.in_flight.fetch_add(1, std::memory_order_seq_cst);
  p.instances[i]->in_flight.store(true, std::memory_order_seq_cst);
  try {
    return std::make_shared<Flight>(plan, p, i);
  } catch (...) {
    p.instances[i]->in_flight.store(false);
    p.in_flight.fetch_sub(1);
    throw;
  }
}

// With the plan's lock: makes what the instance still lacks, writes the scalars and hands the work
// over.
static FencePtr launch(Plan::Impl& p, FlightPtr flight, const std::vector<uint32_t>& scalars,
                       QueuePtr queue, std::vector<FencePtr> after) {
  if (!queue) {
    if (!p.default_queue) p.default_queue = p.runtime->device()->default_queue();
    queue = p.default_queue;
  }
  check_queue(p.runtime->device().get(), queue, after);
  flight->prepare(scalars);
  const size_t index = flight->index;
  flight->queue = queue.get();
  FencePtr fence = queue->enqueue_device(
      [flight = std::move(flight)](Later& later) { return flight->run(later); }, std::move(after));
  p.instances[index]->fence = fence;
  if (p.trace) p.trace->add(fence);
  return fence;
}

FencePtr Plan::submit(const Bindings& bound, QueuePtr queue, std::vector<FencePtr> after) {
  try {
    p_->runtime->device()->check_alive();
    const std::shared_ptr<Bindings::Impl> b = bound.p_;
    std::lock_guard<std::mutex> lock(p_->mutex);
    FlightPtr flight = take_slot(shared_from_this(), *p_);
    if (!b || b->plan.get() != this)
      throw bind_error("foreign", "bindings",
                       "bindings is of another plan and must be made by bind() of " +
                           labelled("plan", p_->data.label));
    flight->take(b->table, p_->data.graph);
    return launch(*p_, std::move(flight), b->scalars, std::move(queue), std::move(after));
  } catch (const Error& e) { return Fence::failed(e); }
}

FencePtr Plan::submit(const BindingMap& buffers, const ScalarMap& scalars, QueuePtr queue,
                      std::vector<FencePtr> after) {
  try {
    p_->runtime->device()->check_alive();
    std::lock_guard<std::mutex> lock(p_->mutex);
    FlightPtr flight = take_slot(shared_from_this(), *p_);
    Impl::Problems problems;
    TablePtr table = p_->bind_buffers(buffers, problems);
    const std::vector<uint32_t> bits = p_->bind_scalars(scalars, problems);
    if (!problems.empty()) throw bind_error(std::move(problems));
    flight->take(std::move(table), p_->data.graph);
    return launch(*p_, std::move(flight), bits, std::move(queue), std::move(after));
  } catch (const Error& e) { return Fence::failed(e); }
}

// ------------------------------------------------------------------------------------------------
// close

void Plan::close() {
  check_fork();
  // Whoever comes second returns when the plan is closed, not before.
  std::lock_guard<std::mutex> closing(p_->closing);
  std::vector<FencePtr> last;
  {
    std::lock_guard<std::mutex> lock(p_->mutex);
    if (p_->closed.exchange(true)) return;
    for (const auto& instance : p_->instances)
      if (FencePtr fence = instance->fence.lock()) last.push_back(std::move(fence));
  }
  released().wait([this] { return p_->in_flight.load(std::memory_order_seq_cst) == 0; });
  // What is in flight lets go of the plan before its fence signals. The destructor may run in
  // between, on the very thread that signals, and does not wait for that.
  if (!p_->dying)
    for (const FencePtr& fence : last) fence->wait_quiet();
  for (const auto& instance : p_->instances) instance->program.reset();
  p_->pool.reset();
  p_->default_queue.reset();
  p_->runtime->p_->close_plan();
}

Plan::~Plan() {
  // In a forked child nothing is waited for and nobody counts.
  if (p_ && !forked()) {
    p_->dying = true;
    close();
  }
}

bool Plan::closed() const {
  check_fork();
  return p_->closed.load();
}
const std::string& Plan::label() const {
  return p_->data.label;
}
const Identity& Plan::identity() const {
  check_fork();
  std::call_once(p_->identity_once, [this] {
    Identity& identity = p_->identity;
    identity = identity_of(p_->data, *p_->runtime->device(), identity.deployment);
  });
  return p_->identity;
}
GraphMemory Plan::memory() const {
  check_fork();
  return p_->data.memory;
}
std::vector<PortDesc> Plan::ports() const {
  check_fork();
  return p_->data.graph.ports;
}
std::vector<ScalarDesc> Plan::scalars() const {
  check_fork();
  return p_->data.graph.scalars;
}
std::vector<Selection> Plan::selections() const {
  check_fork();
  return p_->data.selections;
}
std::string Plan::explain() const {
  check_fork();
  return accel::explain(p_->data);
}
std::string Plan::to_dot() const {
  check_fork();
  return dot_of(p_->data);
}

void Plan::memory_map(const std::string& path) const {
  check_fork();
  const bool json = path.ends_with(".json");
  if (!json && !path.ends_with(".svg"))
    throw attr_error("memory_map", "path",
                     "memory_map: path is " + path + " and must end in .json or .svg");
  write_file(path, json ? memory_map_json(p_->data) : memory_map_svg(p_->data));
}

// ------------------------------------------------------------------------------------------------
// trace

static Error trace_error(const PlanData& data, const char* is_and_must) {
  return attr_error("trace", "plan",
                    "trace: " + labelled("plan", data.label) + " is " + is_and_must);
}

void Plan::begin_trace() {
  check_fork();
  std::lock_guard<std::mutex> lock(p_->mutex);
  if (p_->trace) throw trace_error(p_->data, "being traced and must not be");
  p_->trace = std::make_shared<Trace>();
}

void Plan::drop_trace() {
  std::lock_guard<std::mutex> lock(p_->mutex);
  p_->trace.reset();
}

std::string Plan::end_trace(const std::function<void()>& poll) {
  check_fork();
  std::shared_ptr<Trace> trace;
  {
    std::lock_guard<std::mutex> lock(p_->mutex);
    trace.swap(p_->trace);
  }
  if (!trace) throw trace_error(p_->data, "not being traced and must be");
  trace->wait(poll);
  return chrome_trace(p_->data, trace->runs());
}
const PlanData& Plan::data() const {
  return p_->data;
}
RuntimePtr Plan::runtime() const {
  return p_->runtime;
}

}  // namespace accel
