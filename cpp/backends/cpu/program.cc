#include "backends/cpu/program.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <unordered_map>

#include "backends/cpu/isa.h"

namespace accel {

static int64_t limit_of_machine() {
  const int64_t total = memory_total();
  return total > 0 ? total : int64_t(1) << 40;
}

CpuCore::CpuCore(const CpuOptions& o, const accel_cpu::KernelTable& t, int threads)
    : WorkerHost(o.lose_at, limit_of_machine()), options(o), table(t), pool(threads) {}

CpuProgram::CpuProgram(std::shared_ptr<CpuCore> core, const PlanData& plan, TransientPoolPtr pool)
    : core_(std::move(core)), shared_arena_(std::move(pool)) {
  resolve(plan);
  allocate(plan);
  // Last: a program that fails to be made has changed nothing of the pool.
  if (shared_arena_) shared_arena_->join(arena_bytes_);
  core_->live_programs.fetch_add(1, std::memory_order_acq_rel);
}

CpuProgram::~CpuProgram() {
  if (shared_arena_) shared_arena_->leave();
  core_->live_programs.fetch_sub(1, std::memory_order_acq_rel);
}

void CpuProgram::resolve(const PlanData& plan) {
  std::unordered_map<std::string_view, const accel_cpu::Kernel*> by_name;
  for (const accel_cpu::Kernel* k : kernels_of(core_->table)) by_name.emplace(k->name, k);
  size_t operands = 0;
  for (size_t i = 0; i < plan.commands.size(); ++i) {
    const Command& c = plan.commands[i];
    const auto at = by_name.find(c.row->kernel);
    if (at == by_name.end())
      throw Error(ErrorKind::internal, "internal",
                  std::string("kernel ") + c.row->kernel + " is missing from the table " +
                      core_->table.isa + "; please report this");
    Step step = step_of(c, *at->second);
    step.operand = operands;
    if (core_->options.check) add_check(plan, c, step);
    operands += c.operands.size();
    params_.insert(params_.end(), c.params.begin(), c.params.end());
    scalar_index_.insert(scalar_index_.end(), c.scalars.begin(), c.scalars.end());
    steps_.push_back(step);
    add_to_dispatch(plan, i);
  }
  for (const int i : scalar_index_) ACCEL_CHECK(i >= 0 && size_t(i) < plan.graph.scalars.size());
  scalar_bits_.resize(scalar_index_.size());
  share_weights(plan);
}

CpuProgram::Step CpuProgram::step_of(const Command& c, const accel_cpu::Kernel& kernel) const {
  Step step = {};
  step.kernel = &kernel;
  step.param = params_.size();
  step.scalar = scalar_index_.size();
  step.check = -1;
  step.follows = c.follows;
  for (int p = 0; p < 2; ++p) {
    if (!kernel.phases[p].run) continue;
    step.chunks[p] = kernel.phases[p].chunks(c.params.data(), uint32_t(core_->pool.threads()));
    ACCEL_CHECK(step.chunks[p] >= 1);
  }
  ACCEL_CHECK(step.chunks[0] >= 1);
  return step;
}

// Scratch of one dispatch lies side by side; dispatches follow one another and share it.
void CpuProgram::add_to_dispatch(const PlanData& plan, size_t i) {
  const Command& c = plan.commands[i];
  Step& step = steps_[i];
  const bool starts = i == 0 || c.dispatch != plan.commands[i - 1].dispatch;
  if (starts) dispatches_.push_back({i, 0, false, 0, 0, false, c.chained});
  Dispatch& dispatch = dispatches_.back();
  ++dispatch.count;
  // A submission allocates nothing.
  args_.reserve(dispatch.count);
  parts_.reserve(dispatch.count);
  dispatch.group |= c.follows;
  if (dispatch.chain) {
    dispatch.result = step.operand + c.operands.size() - 1;
    dispatch.rows = size_t(c.operands.back().bytes) / sizeof(uint32_t);
    tokens_.resize(std::max(tokens_.size(), dispatch.rows));
  }
  if (step.kernel->local_bytes)
    local_stride_ =
        std::max(local_stride_, int64_t(step.kernel->local_bytes(&params_[step.param])));
  int64_t end = 0;
  for (size_t k = dispatch.first; k < i; ++k) {
    if (!steps_[k].packed && packs_as(plan, i, k)) {
      step.packed = true;
      step.shared = steps_[k].shared;
      return;
    }
    if (const auto bytes = steps_[k].kernel->shared_bytes; bytes && !steps_[k].packed)
      end = std::max(end, steps_[k].shared + int64_t(bytes(&params_[steps_[k].param])));
  }
  if (!step.kernel->shared_bytes) return;
  step.shared = (end + 63) / 64 * 64;
  shared_bytes_ = std::max(shared_bytes_,
                           step.shared + int64_t(step.kernel->shared_bytes(&params_[step.param])));
}

// Whether the first phases of two steps of a dispatch read and leave the same.
bool CpuProgram::packs_as(const PlanData& plan, size_t i, size_t earlier) const {
  const Step &a = steps_[i], &b = steps_[earlier];
  if (!a.kernel->packs_alike || a.kernel->phases[0].run != b.kernel->phases[0].run) return false;
  const Place &x = plan.commands[i].operands[0], &y = plan.commands[earlier].operands[0];
  return x.kind == y.kind && x.index == y.index && x.offset == y.offset && x.bytes == y.bytes &&
         a.kernel->packs_alike(&params_[a.param], &params_[b.param]);
}

void CpuProgram::add_check(const PlanData& plan, const Command& c, Step& step) {
  const accel::Step& node = plan.steps[size_t(c.step)];
  if (node.def->checks.empty()) return;
  step.check = int(checks_.size());
  checks_.push_back({node.call, plan.graph.node(node.node).site});
}

void CpuProgram::allocate(const PlanData& plan) {
  const std::string what = "plan " + plan.label + ": ";
  const int64_t threads = core_->pool.threads();
  // Two lines between the threads' scratch: neighbouring lines are fetched in pairs.
  local_stride_ = (local_stride_ + 127) / 128 * 128;
  arena_bytes_ = plan.memory.transient_bytes;
  if (arena_bytes_ && !shared_arena_)
    arena_ = core_->allocate(arena_bytes_, what + "the arena of the transients");
  if (shared_bytes_) shared_ = core_->allocate(shared_bytes_, what + "the scratch of its kernels");
  if (local_stride_)
    local_ = core_->allocate(local_stride_ * threads, what + "the scratch of its threads");
  for (const FrequencyTable& t : plan.tables)
    tables_.push_back(
        core_->allocate(t.rotary_dim / 2 * int64_t(sizeof(float)), what + "a frequency table"));
}

// debug_fill: what a submission finds in its transients and scratch is worth nothing.
void CpuProgram::fill(void* arena) const {
  const int byte = core_->options.debug_fill;
  if (byte < 0) return;
  if (arena) std::memset(arena, byte, size_t(arena_bytes_));
  if (shared_) std::memset(shared_.get(), byte, size_t(shared_bytes_));
  if (local_) std::memset(local_.get(), byte, size_t(local_stride_ * core_->pool.threads()));
}

std::optional<Error> CpuProgram::run(const Execution& e) {
  const TransientPool::Claim claim(shared_arena_);
  if (claim.refused()) return claim.refused();
  const Pool::Turn turn(core_->pool);
  fill(e.arena.get());
  for (size_t i = 0; i < scalar_index_.size(); ++i) scalar_bits_[i] = e.scalars[scalar_index_[i]];
  if (e.command_ns) e.command_ns->push_back(now_ns());
  if (!e.command_ns) {
    for (const Dispatch& dispatch : dispatches_)
      if (auto bad = run_dispatch(dispatch, e)) return bad;
    return std::nullopt;
  }
  // A trace wants the time of each, so they run one by one.
  for (const Step& step : steps_) {
    if (auto bad = run_step(step, e)) return bad;
    e.command_ns->push_back(now_ns());
  }
  return std::nullopt;
}

}  // namespace accel
