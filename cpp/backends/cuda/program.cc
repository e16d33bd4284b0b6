#include "backends/cuda/program.h"

#include <algorithm>
#include <utility>

#include "backends/cuda/errors.h"
#include "exec/fork.h"
#include "exec/testing.h"
#include "shared/places.h"

namespace accel::cuda {

// Of the scalars of one command, in words.
static constexpr size_t kScalarAlign = 4;
// What an absent operand points at.
static constexpr int64_t kNothingBytes = 256;

CudaProgram::CudaProgram(std::shared_ptr<Core> core, const PlanData& plan, TransientPoolPtr pool)
    : core_(std::move(core)), shared_arena_(std::move(pool)), context_(core_->context()) {
  const Current current(*context_);
  check(current.result, "cuCtxPushCurrent", *core_);
  allocate(plan);
  for (const Command& c : plan.commands) {
    entries_.push_back(n_entries_);
    n_entries_ += c.operands.size();
  }
  for (int i = 0; i < int(plan.commands.size()); ++i) {
    add_launches(plan, i);
    if (core_->options.check) add_check(plan, i);
  }
  entries_.push_back(n_entries_);
  steps_ = nodes_.size();
  order_graph(plan);
  sort_patches();
  seen_.resize(n_entries_);
  stale_.resize(nodes_.size());
  for (const Pending& p : pending_)
    arguments_.push_back(p.params ? static_cast<void*>(&params_[p.at]) : &addresses_[p.at]);
  leave_out_barrier();
  make_graph();
  // Last: a program that fails to be made has changed nothing of the pool.
  if (shared_arena_) shared_arena_->join(arena_bytes_);
  core_->live_programs.fetch_add(1, std::memory_order_acq_rel);
}

CudaProgram::~CudaProgram() {
  if (shared_arena_) shared_arena_->leave();
  core_->live_programs.fetch_sub(1, std::memory_order_acq_rel);
}

CudaProgram::Graph::~Graph() {
  if (!context || forked()) return;
  const Current current(*context);
  if (current.result) return;
  if (exec) context->api.GraphExecDestroy(exec);
  if (graph) context->api.GraphDestroy(graph);
}

Error CudaProgram::error_of(CUresult result, const char* call) {
  return cuda::error_of(result, call, *core_);
}

void CudaProgram::allocate(const PlanData& plan) {
  const std::string what = "plan " + plan.label + ": ";
  arena_bytes_ = plan.memory.transient_bytes;
  scratch_bytes_ = plan.scratch_bytes;
  if (arena_bytes_ && !shared_arena_)
    arena_ = core_->allocate(arena_bytes_, what + "the arena of the transients");
  if (scratch_bytes_)
    scratch_ = core_->allocate(scratch_bytes_, what + "the scratch of its kernels");
  nothing_ = core_->allocate(kNothingBytes, what + "the operand that is absent");
  size_t words = 0;
  for (const Command& c : plan.commands)
    words += (c.scalars.size() + kScalarAlign - 1) / kScalarAlign * kScalarAlign;
  if (words) {
    scalars_ = core_->allocate(int64_t(words * sizeof(uint32_t)), what + "its runtime scalars");
    host_scalars_ = core_->pin(int64_t(words * sizeof(uint32_t)));
    sent_.resize(words);
  }
  for (const FrequencyTable& t : plan.tables) {
    Table table;
    table.bytes = t.rotary_dim / 2 * int64_t(sizeof(float));
    table.device = core_->allocate(table.bytes, what + "a frequency table");
    table.host = core_->pin(table.bytes);
    tables_.push_back(std::move(table));
  }
  std::vector<uint8_t> ports(plan.graph.ports.size());
  for (const PortSlot& slot : plan.slots) ports[size_t(slot.port)] |= uint8_t(slot.written);
  for (const PortSlot& slot : plan.slots) written_.push_back(ports[size_t(slot.port)]);
}

// Bound memory of a port that is written is apart from that of every other (bind), and tables are
// filled before the launch.
bool CudaProgram::is_written(const Place& place) const {
  return place.kind == Place::arena || (place.kind == Place::port && written_[size_t(place.index)]);
}

void CudaProgram::add_launches(const PlanData& plan, int command) {
  const Command& c = plan.commands[size_t(command)];
  const int64_t scalars = c.scalars.empty() ? -1 : int64_t(scalar_index_.size());
  if (!c.scalars.empty()) {
    scalar_index_.insert(scalar_index_.end(), c.scalars.begin(), c.scalars.end());
    while (scalar_index_.size() % kScalarAlign) scalar_index_.push_back(-1);
  }
  bool first = true;
  for (const Launch& launch : c.launches.list) {
    const Function function = core_->modules().get(launch);
    Node node = node_of(function, launch, command);
    node.barrier = first ? c.barrier_before : launch.waits;
    first = false;
    add_arguments(plan, function, command, launch, node, scalars);
    node.arguments = pending_.size() - node.argument;
    nodes_.push_back(node);
  }
}

CudaProgram::Node CudaProgram::node_of(const Function& function, const Launch& launch,
                                       int command) {
  Node node{};
  node.function = function.handle;
  std::copy(std::begin(launch.groups), std::end(launch.groups), node.groups);
  bound_groups(launch, function.handle, node.groups);
  node.threads = launch.threads;
  node.group_bytes = launch.group_bytes;
  node.command = command;
  node.argument = pending_.size();
  return node;
}

void CudaProgram::add_combined(const PlanData& plan, const Combined& combined, bool barrier) {
  const Function function = core_->modules().get(combined.launch);
  Node node = node_of(function, combined.launch, combined.last);
  node.barrier = barrier;
  for (int i = 0; i < function.n_places; ++i) {
    const size_t place = function.places[i];
    if (place == PARAMS) {
      add_params(function, combined.params, 0);
      continue;
    }
    ACCEL_CHECK(place < combined.operands.size());
    const auto [command, operand] = combined.operands[place];
    if (command < 0) add_address(device_pointer(nothing_.get()));
    else if (add_operand(plan, command, size_t(operand)) && function.early >> place & 1)
      node.early = false;
  }
  node.arguments = pending_.size() - node.argument;
  in_graph_.push_back(nodes_.size());
  nodes_.push_back(node);
}

// A run waits for what any of its commands waits for. What follows one with a barrier inside waits
// for it: it may touch what the run touches in front of that barrier.
void CudaProgram::order_graph(const PlanData& plan) {
  auto run = plan.combined.begin();
  bool waits = false;
  for (size_t n = 0; n < steps_;) {
    const int command = nodes_[n].command;
    if (run == plan.combined.end() || command < run->first) {
      nodes_[n].barrier |= std::exchange(waits, false);
      in_graph_.push_back(n++);
      continue;
    }
    bool barrier = std::exchange(waits, false);
    for (int c = run->first; c <= run->last; ++c) {
      barrier |= plan.commands[size_t(c)].barrier_before;
      waits |= c > run->first && plan.commands[size_t(c)].barrier_before;
    }
    add_combined(plan, *run, barrier);
    while (n < steps_ && nodes_[n].command <= run->last) ++n;
    ++run;
  }
}

// By the command of the entry, as runs compare them.
void CudaProgram::sort_patches() {
  std::stable_sort(patches_.begin(), patches_.end(),
                   [](const Patch& a, const Patch& b) { return a.command < b.command; });
  first_patch_.clear();
  for (size_t i = 0, c = 0; c < entries_.size(); ++c) {
    while (i < patches_.size() && patches_[i].command < int(c)) ++i;
    first_patch_.push_back(i);
  }
}

void CudaProgram::bound_groups(const Launch& launch, CUfunction function, uint32_t* groups) {
  if (!launch.per_unit) return;
  int units = 0, fit = 0;
  const Driver& api = core_->api;
  check(api.DeviceGetAttribute(&units, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, core_->device),
        "cuDeviceGetAttribute", *core_);
  check(api.OccupancyMaxActiveBlocksPerMultiprocessor(&fit, function, int(launch.threads),
                                                      launch.group_bytes),
        "cuOccupancyMaxActiveBlocksPerMultiprocessor", *core_);
  const uint32_t each = std::min(launch.per_unit, uint32_t(std::max(fit, 1)));
  uint32_t& most = groups[groups[1] > groups[0]];
  most = std::min(most, each * uint32_t(std::max(units, 1)));
}

void CudaProgram::add_address(CUdeviceptr address) {
  pending_.push_back({false, addresses_.size()});
  addresses_.push_back(address);
}

// The address of an operand, which each run looks up; an absent one has nothing. True for memory
// that a command of the plan writes.
bool CudaProgram::add_operand(const PlanData& plan, int command, size_t operand) {
  const Command& c = plan.commands[size_t(command)];
  ACCEL_CHECK(operand < c.operands.size());
  if (c.operands[operand].kind != Place::none)
    patches_.push_back(
        {command, entries_[size_t(command)] + operand, addresses_.size(), nodes_.size()});
  add_address(device_pointer(nothing_.get()));
  return is_written(c.operands[operand]);
}

void CudaProgram::add_params(const Function& function, const std::vector<uint32_t>& words,
                             size_t first) {
  ACCEL_CHECK(first <= words.size());
  const size_t n = size_t(function.params_bytes) / sizeof(uint32_t);
  ACCEL_CHECK(n <= words.size() - first);
  pending_.push_back({true, params_.size()});
  const auto from = words.begin() + int64_t(first);
  params_.insert(params_.end(), from, from + int64_t(n));
}

void CudaProgram::add_arguments(const PlanData& plan, const Function& function, int command,
                                const Launch& launch, Node& node, int64_t scalars) {
  const Command& c = plan.commands[size_t(command)];
  const size_t operands = launch.operands.empty() ? c.operands.size() : launch.operands.size();
  for (int i = 0; i < function.n_places; ++i) {
    const size_t place = function.places[i];
    if (place == PARAMS) {
      add_params(function, c.params, launch.first_param);
    } else if (place == SCALARS) {
      ACCEL_CHECK(scalars >= 0);
      add_address(device_pointer(scalars_.get()) + CUdeviceptr(scalars) * sizeof(uint32_t));
    } else if (place == SCRATCH) {
      ACCEL_CHECK(c.launches.scratch > 0);
      if (function.early >> place & 1) node.early = false;
      add_address(device_pointer(scratch_.get()) + CUdeviceptr(c.scratch_offset));
    } else {
      ACCEL_CHECK(place < operands);
      const size_t at = launch.operands.empty() ? place : size_t(launch.operands[place]);
      if (add_operand(plan, command, at) && function.early >> place & 1) node.early = false;
    }
  }
}

void CudaProgram::leave_out_barrier() {
  const int64_t left_out = barrier_test().left_out;
  int64_t placed = 0;
  for (size_t i = 1; i < in_graph_.size(); ++i)
    if (bool& barrier = nodes_[in_graph_[i]].barrier; barrier && ++placed == left_out)
      barrier = false;
  barrier_test().placed = placed;
}

void CudaProgram::add_check(const PlanData& plan, int command) {
  const Command& c = plan.commands[size_t(command)];
  const Step& step = plan.steps[size_t(c.step)];
  checks_.emplace_back();
  if (step.def->checks.empty()) return;
  Check check{{step.call, plan.graph.node(step.node).site}, {}};
  for (const Place& place : c.operands) check.bytes.push_back(place.bytes);
  checks_.back() = std::move(check);
}

CUDA_KERNEL_NODE_PARAMS_v2 CudaProgram::params_of(const Node& node) {
  CUDA_KERNEL_NODE_PARAMS_v2 p = {};
  p.func = node.function;
  p.gridDimX = node.groups[0];
  p.gridDimY = node.groups[1];
  p.gridDimZ = node.groups[2];
  p.blockDimX = node.threads;
  p.blockDimY = p.blockDimZ = 1;
  p.sharedMemBytes = node.group_bytes;
  p.kernelParams = arguments_.data() + node.argument;
  return p;
}

// Between so many pairs of nodes edges stand directly; above it a node without work joins them.
static constexpr size_t kMostEdges = 16;

// Behind one launch a node begins beside it, where the device can and `early` allows it; behind
// several, or a node without work, it begins when they have ended.
void CudaProgram::add_node(Node& node, const std::vector<CUgraphNode>& before, bool launches) {
  const Driver& api = core_->api;
  const bool overlaps = core_->options.overlap && node.early && launches && before.size() == 1;
  const CUDA_KERNEL_NODE_PARAMS_v2 params = params_of(node);
  check(api.GraphAddKernelNode(&node.node, graph_.graph, before.data(),
                               overlaps ? 0 : before.size(), &params),
        "cuGraphAddKernelNode", *core_);
  if (!overlaps) return;
  CUgraphEdgeData edge = {};
  edge.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
  edge.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  check(api.GraphAddDependencies(graph_.graph, before.data(), &node.node, &edge, 1),
        "cuGraphAddDependencies", *core_);
}

void CudaProgram::make_graph() {
  const Driver& api = core_->api;
  graph_.context = context_;
  check(api.GraphCreate(&graph_.graph, 0), "cuGraphCreate", *core_);
  std::vector<CUgraphNode> before, now;
  bool launches = true;  // are those in `before`
  const auto starts = [&](size_t i) {
    return nodes_[in_graph_[i]].barrier || core_->options.serial;
  };
  for (size_t i = 0; i < in_graph_.size(); ++i) {
    if (i && starts(i)) {
      before = std::exchange(now, {});
      launches = true;
      size_t end = i + 1;
      while (end < in_graph_.size() && !starts(end)) ++end;
      if (before.size() > 1 && before.size() * (end - i) > kMostEdges) {
        CUgraphNode join = nullptr;
        check(api.GraphAddEmptyNode(&join, graph_.graph, before.data(), before.size()),
              "cuGraphAddEmptyNode", *core_);
        before = {join};
        launches = false;
      }
    }
    Node& node = nodes_[in_graph_[i]];
    add_node(node, before, launches);
    now.push_back(node.node);
  }
  check(api.GraphInstantiateWithFlags(&graph_.exec, graph_.graph, 0), "cuGraphInstantiate", *core_);
}

}  // namespace accel::cuda
