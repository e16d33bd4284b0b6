// Encoding and running a program: one concurrent encoder a command buffer, barriers where the plan
// has them, the fence of the stream between encoders.
#include <utility>

#include "backends/metal/errors.h"
#include "backends/metal/program.h"
#include "shared/places.h"

namespace accel::metal {

namespace {

constexpr size_t kPlaces = 31;

}  // namespace

// Binds what has changed since the launch before.
class MetalProgram::Encoder {
 public:
  Encoder(const MetalProgram& program, const Execution& e, MTL::ComputeCommandEncoder* to)
      : p_(program),
        e_(e),
        to_(to),
        arena_(buffer_of(e.arena)),
        scratch_(buffer_of(program.scratch_)),
        constants_(buffer_of(program.constants_)) {}

  void launch(const Step& step) {
    if (step.pipeline.get() != pipeline_) {
      pipeline_ = step.pipeline.get();
      to_->setComputePipelineState(pipeline_);
    }
    for (size_t i = 0; i < step.operands; ++i) bind_operand(p_.operands_[step.operand + i], i);
    if (step.params >= 0) bind(constants_, step.params, PARAMS);
    if (step.scalars >= 0) bind(constants_, step.scalars, SCALARS);
    if (step.scratch >= 0) bind(scratch_, step.scratch, SCRATCH);
    to_->dispatchThreadgroups(step.groups, step.threads);
  }

 private:
  void bind_operand(const Operand& o, size_t index) {
    switch (o.kind) {
      case Place::none:
        return bind(buffer_of(p_.core_->dummy), 0, index);
      case Place::arena:
        return bind(arena_, o.offset, index);
      case Place::table:
        return bind(buffer_of(p_.tables_[size_t(o.index)]), o.offset, index);
      case Place::port: {
        const BufferView& view = e_.views[o.index];
        return bind(static_cast<MTL::Buffer*>(view.buffer->native()),
                    view.offset * size_of(view.dtype) + o.offset, index);
      }
    }
  }
  void bind(MTL::Buffer* buffer, int64_t offset, size_t index) {
    ACCEL_CHECK(buffer && index < kPlaces);
    if (buffers_[index] == buffer && offsets_[index] == offset) return;
    if (buffers_[index] == buffer) to_->setBufferOffset(NS::UInteger(offset), index);
    else to_->setBuffer(buffer, NS::UInteger(offset), index);
    buffers_[index] = buffer;
    offsets_[index] = offset;
  }

  const MetalProgram& p_;
  const Execution& e_;
  MTL::ComputeCommandEncoder* const to_;
  MTL::Buffer *const arena_, *const scratch_, *const constants_;
  MTL::ComputePipelineState* pipeline_ = nullptr;
  MTL::Buffer* buffers_[kPlaces] = {};
  int64_t offsets_[kPlaces] = {};
};

// ---------------------------------------------------------------- parts

bool MetalProgram::encode_fill(MTL::CommandBuffer* buffer, const Execution& e,
                               const Stream& stream) const {
  MTL::BlitCommandEncoder* to = buffer->blitCommandEncoder();
  if (!to) return false;
  if (stream.used) to->waitForFence(stream.fence.get());
  const auto byte = uint8_t(core_->options.debug_fill);
  if (arena_bytes_)
    to->fillBuffer(buffer_of(e.arena), NS::Range(0, whole_words(arena_bytes_)), byte);
  if (scratch_bytes_)
    to->fillBuffer(buffer_of(scratch_), NS::Range(0, whole_words(scratch_bytes_)), byte);
  to->updateFence(stream.fence.get());
  to->endEncoding();
  return true;
}

// Null where the driver gives no command buffer or encoder. What it refers to is held until it is
// over: by the submission's bindings, the program, the core.
Ref<MTL::CommandBuffer> MetalProgram::encode(const Execution& e, Stream& stream, size_t first,
                                             size_t last, bool fill) const {
  auto buffer = keep(stream.queue->commandBufferWithUnretainedReferences());
  if (!buffer) return buffer;
  if (fill && !encode_fill(buffer.get(), e, stream)) return {};
  MTL::ComputeCommandEncoder* to = buffer->computeCommandEncoder(MTL::DispatchTypeConcurrent);
  if (!to) return {};
  // Nothing of the submissions and parts before runs beside this one.
  if ((fill || stream.used) && (first || first_waits_)) to->waitForFence(stream.fence.get());
  Encoder encoder(*this, e, to);
  for (size_t i = first; i < last; ++i) {
    if (steps_[i].barrier && i > first) to->memoryBarrier(MTL::BarrierScopeBuffers);
    encoder.launch(steps_[i]);
  }
  to->updateFence(stream.fence.get());
  stream.used = true;
  to->endEncoding();
  return buffer;
}

static Error no_command_buffer() {
  return device_error("the driver gave no command buffer");
}

// What the completed handlers of one submission share.
class MetalProgram::Submission {
 public:
  Submission(std::shared_ptr<Core> core, std::shared_ptr<Stream> stream,
             std::unique_ptr<TransientPool::Claim> claim, Done done, int parts)
      : core_(std::move(core)),
        stream_(std::move(stream)),
        claim_(std::move(claim)),
        done_(std::move(done)),
        left_(parts) {}
  // Where encoding threw, parts are missing: what was committed is over, and run() gives the error.
  ~Submission() {
    if (done_) end();
  }
  void over(int parts, std::optional<Error> error) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (error && !error_) error_ = std::move(error);
    }
    if (left_.fetch_sub(parts, std::memory_order_acq_rel) == parts) end();
  }
  void over(MTL::CommandBuffer* buffer) { over(1, error_of(buffer, *core_)); }
  bool failed() {
    std::lock_guard<std::mutex> lock(mutex_);
    return error_.has_value();
  }

 private:
  void end() {
    claim_.reset();
    const Done done = std::exchange(done_, nullptr);
    done(std::move(error_));
  }
  const std::shared_ptr<Core> core_;
  const std::shared_ptr<Stream> stream_;  // whose fence nothing else holds
  std::unique_ptr<TransientPool::Claim> claim_;
  Done done_;
  std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<int> left_;
};

std::optional<Error> MetalProgram::run(const Execution& e) {
  auto claim = std::make_unique<TransientPool::Claim>(shared_arena_, e.queue);
  if (claim->refused()) return claim->refused();
  const std::shared_ptr<Stream> held = static_cast<MetalQueue*>(e.queue)->stream;
  Stream& stream = *held;
  const Scope scope;
  core_->residency->commit();
  write_scalars(e);
  if (core_->options.check || e.command_ns) return run_in_steps(e, stream);
  auto buffer = encode(e, stream, 0, parts_[0], fills());
  if (!buffer) return no_command_buffer();
  const auto submission = std::make_shared<Submission>(core_, held, std::move(claim),
                                                       e.later.take(), int(parts_.size()));
  const MTL::HandlerFunction over = [submission](MTL::CommandBuffer* b) { submission->over(b); };
  // From here on the last part ends the submission, whatever happens. Where a part fails or has no
  // buffer, none behind it is committed: it would read what was never computed.
  for (size_t i = 0;;) {
    buffer->addCompletedHandler(over);
    buffer->commit();
    if (++i == parts_.size()) return std::nullopt;
    if (!submission->failed()) buffer = encode(e, stream, parts_[i - 1], parts_[i], false);
    else buffer.reset();
    if (buffer) continue;
    submission->over(int(parts_.size() - i), no_command_buffer());  // the first error stays
    return std::nullopt;
  }
}

// ---------------------------------------------------------------- one by one

std::optional<Error> MetalProgram::run_and_wait(const Execution& e, Stream& stream, size_t first,
                                                size_t last, bool fill) const {
  const Scope scope;
  const auto buffer = encode(e, stream, first, last, fill);
  if (!buffer) return no_command_buffer();
  buffer->commit();
  buffer->waitUntilCompleted();
  return error_of(buffer.get(), *core_);
}

// For whoever looks at values or at the clock between commands: the device is waited for there.
std::optional<Error> MetalProgram::run_in_steps(const Execution& e, Stream& stream) {
  // Before the first look, what runs on the stream must be over.
  if (auto bad = run_and_wait(e, stream, 0, 0, fills())) return bad;
  if (e.command_ns) e.command_ns->push_back(now_ns());
  size_t begin = 0;
  for (size_t i = 0; i < steps_.size();) {
    const int command = steps_[i].command;
    if (!checks_.empty() && checks_[size_t(command)]) {
      if (i > begin)
        if (auto bad = run_and_wait(e, stream, begin, i, false)) return bad;
      begin = i;
      if (auto bad = check_data(*checks_[size_t(command)], e.table + entries_[size_t(command)]))
        return bad;
    }
    while (i < steps_.size() && steps_[i].command == command) ++i;
    if (!e.command_ns && i < steps_.size()) continue;
    if (auto bad = run_and_wait(e, stream, begin, i, false)) return bad;
    begin = i;
    if (e.command_ns) e.command_ns->push_back(now_ns());
  }
  return std::nullopt;
}

}  // namespace accel::metal
