#include "backends/metal/program.h"

#include <cstring>

#include "exec/testing.h"

namespace accel::metal {

// Of parameters and scalars: enough for constant memory of every family.
static constexpr size_t kConstantAlign = 256;
// Launches of a command buffer. The first is short, so that the device starts while the rest is
// encoded.
static constexpr size_t kFirstPart = 64, kPart = 512;
// A system stops a command buffer that keeps the device for seconds. At 50 GB/s this is a tenth of
// one, and with two int4 weights a byte, 32 rows at once, some 2^39 operations.
static constexpr int64_t kPartBytes = int64_t(4) << 30;

MetalProgram::MetalProgram(std::shared_ptr<Core> core, const PlanData& plan, TransientPoolPtr pool)
    : core_(std::move(core)), shared_arena_(std::move(pool)) {
  std::vector<uint8_t> constants;
  size_t entry = 0;
  for (int i = 0; i < int(plan.commands.size()); ++i) {
    entries_.push_back(entry);
    entry += plan.commands[size_t(i)].operands.size();
    add_launches(plan, i, constants);
    if (core_->options.check) add_check(plan, i);
  }
  leave_out_barrier();
  cut();
  core_->pipelines.save();
  allocate(plan, constants);
  // Last: a program that fails to be made has changed nothing of the pool.
  if (shared_arena_) shared_arena_->join(arena_bytes_);
  core_->residency->commit();
  core_->live_programs.fetch_add(1, std::memory_order_acq_rel);
}

MetalProgram::~MetalProgram() {
  if (shared_arena_) shared_arena_->leave();
  core_->live_programs.fetch_sub(1, std::memory_order_acq_rel);
}

// Words in constant memory of their own alignment; -1 for none.
static int64_t add_constants(std::vector<uint8_t>& constants, const uint32_t* words, size_t n) {
  if (n == 0) return -1;
  const size_t at = (constants.size() + kConstantAlign - 1) / kConstantAlign * kConstantAlign;
  constants.resize(at + n * sizeof(uint32_t));
  std::memcpy(&constants[at], words, n * sizeof(uint32_t));
  return int64_t(at);
}

// About what a command moves between memory and the device. A product reads its weight once for so
// many rows, so this grows with its arithmetic too.
static int64_t bytes_of(const Call& call) {
  constexpr int64_t kRowsTogether = 32;
  int64_t bytes = 0;
  for (const In& in : call.in)
    if (in.present) bytes += in.shape.elements() * size_of(in.dtype);
  for (const Type& result : call.results) bytes += result.bytes();
  if (call.results.empty() || call.results[0].shape.rank() == 0) return bytes;
  const Shape& shape = call.results[0].shape;
  const int64_t rows = shape.elements() / std::max<int64_t>(shape.back(), 1);
  const int64_t times = std::max<int64_t>((rows + kRowsTogether - 1) / kRowsTogether, 1);
  // Bounded, so that no sum of them overflows.
  return std::min(bytes, kPartBytes) * std::min(times, int64_t(1) << 20);
}

void MetalProgram::add_launches(const PlanData& plan, int command,
                                std::vector<uint8_t>& constants) {
  const Command& c = plan.commands[size_t(command)];
  const std::vector<uint32_t> zeros(c.scalars.size());
  const int64_t scalars = add_constants(constants, zeros.data(), zeros.size());
  for (size_t i = 0; i < c.scalars.size(); ++i)
    scalars_.push_back({scalars + int64_t(i * sizeof(uint32_t)), c.scalars[i]});
  bool first = true;
  for (const Launch& launch : c.launches.list) {
    Step step;
    step.pipeline = core_->pipelines.get(launch.function, launch.threads);
    step.groups = MTL::Size(launch.groups[0], launch.groups[1], launch.groups[2]);
    step.threads = MTL::Size(launch.threads, 1, 1);
    step.operand = operands_.size();
    add_operands(plan, c, launch);
    step.operands = operands_.size() - step.operand;
    ACCEL_CHECK(launch.first_param <= c.params.size());
    step.params = add_constants(constants, c.params.data() + launch.first_param,
                                c.params.size() - launch.first_param);
    step.scalars = scalars;
    step.scratch = c.launches.scratch ? c.scratch_offset : -1;
    step.command = command;
    step.barrier = first ? c.barrier_before : launch.waits;
    step.bytes = first ? bytes_of(plan.steps[size_t(c.step)].call) : 0;
    first = false;
    steps_.push_back(std::move(step));
  }
}

void MetalProgram::cut() {
  size_t begin = 0;
  int64_t bytes = 0;
  for (size_t i = 0; i < steps_.size(); ++i) {
    const bool full =
        i - begin >= (begin ? kPart : kFirstPart) || bytes > kPartBytes - steps_[i].bytes;
    if (full && i > begin) {
      parts_.push_back(i);
      begin = i;
      bytes = 0;
    }
    bytes += steps_[i].bytes;
  }
  parts_.push_back(steps_.size());  // also of a plan that launches nothing
}

void MetalProgram::leave_out_barrier() {
  const int64_t left_out = barrier_test().left_out;
  first_waits_ = left_out != -1;
  int64_t placed = 0;
  for (size_t i = 1; i < steps_.size(); ++i)
    if (steps_[i].barrier && ++placed == left_out) steps_[i].barrier = false;
  barrier_test().placed = placed;
}

void MetalProgram::add_operands(const PlanData& plan, const Command& c, const Launch& launch) {
  const size_t n = launch.operands.empty() ? c.operands.size() : launch.operands.size();
  for (size_t i = 0; i < n; ++i) {
    const size_t at = launch.operands.empty() ? i : size_t(launch.operands[i]);
    ACCEL_CHECK(at < c.operands.size());
    const Place& place = c.operands[at];
    Operand operand{place.kind, place.index, place.offset};
    if (place.kind == Place::port) {
      const PortSlot& slot = plan.slots[size_t(place.index)];
      operand.index = slot.port;
      operand.offset += slot.begin * size_of(plan.graph.ports[size_t(slot.port)].dtype);
    }
    operands_.push_back(operand);
  }
}

void MetalProgram::add_check(const PlanData& plan, int command) {
  const accel::Step& node = plan.steps[size_t(plan.commands[size_t(command)].step)];
  checks_.emplace_back();
  if (!node.def->checks.empty()) checks_.back() = {node.call, plan.graph.node(node.node).site};
}

void MetalProgram::allocate(const PlanData& plan, const std::vector<uint8_t>& constants) {
  const std::string what = "plan " + plan.label + ": ";
  arena_bytes_ = plan.memory.transient_bytes;
  scratch_bytes_ = plan.scratch_bytes;
  if (arena_bytes_ && !shared_arena_)
    arena_ = core_->allocate(arena_bytes_, what + "the arena of the transients");
  if (scratch_bytes_)
    scratch_ = core_->allocate(scratch_bytes_, what + "the scratch of its kernels");
  constants_ = core_->allocate(int64_t(constants.size()), what + "the parameters of its kernels");
  std::memcpy(constants_.get(), constants.data(), constants.size());
  for (const FrequencyTable& t : plan.tables)
    tables_.push_back(
        core_->allocate(t.rotary_dim / 2 * int64_t(sizeof(float)), what + "a frequency table"));
}

// The run before has ended, so nothing reads them now.
void MetalProgram::write_scalars(const Execution& e) const {
  for (const Scalar& s : scalars_)
    std::memcpy(static_cast<char*>(constants_.get()) + s.at, &e.scalars[s.index], sizeof(uint32_t));
}

}  // namespace accel::metal
