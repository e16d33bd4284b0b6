// A plan compiled for Metal: pipelines, constants and memory ready, launches to be encoded.
#pragma once
#include "backends/metal/queue.h"
#include "exec/data_check.h"

namespace accel::metal {

class MetalProgram : public Program {
 public:
  // Throws compile errors of the shaders, capacity errors for the memory. The transients are the
  // pool's where one is given.
  MetalProgram(std::shared_ptr<Core> core, const PlanData& plan, TransientPoolPtr pool);
  ~MetalProgram() override;
  std::optional<Error> run(const Execution& execution) override;
  std::shared_ptr<void> arena() const override {
    return shared_arena_ ? shared_arena_->block() : arena_;
  }
  void* frequency_table(int i) const override { return tables_[size_t(i)].get(); }

 private:
  // Where an operand is: an offset into the arena, a port's view or a table.
  struct Operand {
    Place::Kind kind;
    int index;  // port or table
    int64_t offset;
  };
  struct Step {
    Ref<MTL::ComputePipelineState> pipeline;
    MTL::Size groups, threads;
    size_t operand, operands;          // of operands_, bound from index 0 on
    int64_t params, scalars, scratch;  // offsets, or -1
    int command;
    bool barrier;   // waits for the launches before it
    int64_t bytes;  // about what its command moves; 0 behind the first of the command
  };
  struct Scalar {
    int64_t at;  // in the constants
    int index;   // of the declared scalars
  };
  class Encoder;
  class Submission;
  void add_launches(const PlanData& plan, int command, std::vector<uint8_t>& constants);
  void add_operands(const PlanData& plan, const Command& command, const Launch& launch);
  void add_check(const PlanData& plan, int command);
  void cut();
  void leave_out_barrier();
  void allocate(const PlanData& plan, const std::vector<uint8_t>& constants);
  void write_scalars(const Execution& execution) const;
  bool fills() const { return core_->options.debug_fill >= 0; }

  // encode.cc. A part is the steps [first, last) in a command buffer of its own; `fill` first
  // overwrites what a submission finds in its transients and scratch.
  Ref<MTL::CommandBuffer> encode(const Execution& execution, Stream& stream, size_t first,
                                 size_t last, bool fill) const;
  bool encode_fill(MTL::CommandBuffer* buffer, const Execution& execution,
                   const Stream& stream) const;
  std::optional<Error> run_in_steps(const Execution& execution, Stream& stream);
  std::optional<Error> run_and_wait(const Execution& execution, Stream& stream, size_t first,
                                    size_t last, bool fill) const;

  const std::shared_ptr<Core> core_;
  const TransientPoolPtr shared_arena_;
  std::vector<Step> steps_;
  std::vector<size_t> parts_;  // where each command buffer's steps end
  bool first_waits_ = true;    // for what was submitted before; tests alone switch it off
  std::vector<Operand> operands_;
  std::vector<Scalar> scalars_;
  std::vector<std::optional<DataCheck>> checks_;  // by command; empty without check=True
  std::vector<size_t> entries_;                   // by command: its first of Execution::table
  int64_t arena_bytes_ = 0, scratch_bytes_ = 0;
  std::shared_ptr<void> arena_, scratch_, constants_;
  std::vector<std::shared_ptr<void>> tables_;
};

}  // namespace accel::metal
