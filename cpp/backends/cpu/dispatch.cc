// Running the dispatches of a program: one step, several without a conflict, or a group whose
// elementwise steps follow its products piece by piece.
#include "backends/cpu/program.h"

namespace accel {

using accel_cpu::KernelArgs;

KernelArgs CpuProgram::args_of(const Step& step, const Execution& e) const {
  return {e.table + step.operand, params_.data() + step.param, scalar_bits_.data() + step.scalar,
          static_cast<char*>(shared_.get()) + step.shared};
}

std::optional<Error> CpuProgram::check(const Step& step, const Execution& e) const {
  if (step.check < 0) return std::nullopt;
  return check_data(checks_[size_t(step.check)], e.table + step.operand);
}

// By itself, whatever its dispatch: nothing is packed for it.
std::optional<Error> CpuProgram::run_step(const Step& step, const Execution& e) {
  if (auto bad = check(step, e)) return bad;
  args_.assign(1, args_of(step, e));
  for (int phase = 0; phase < 2 && step.chunks[phase]; ++phase) {
    add_part(step, phase, args_[0]);
    run_parts();
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- several steps at once

std::optional<Error> CpuProgram::run_dispatch(const Dispatch& dispatch, const Execution& e) {
  if (dispatch.count == 1) return run_step(steps_[dispatch.first], e);
  args_.clear();
  for (size_t k = 0; k < dispatch.count; ++k) {
    const Step& step = steps_[dispatch.first + k];
    if (auto bad = check(step, e)) return bad;
    args_.push_back(args_of(step, e));
  }
  // First phases of kernels that have two, but once where several would leave the same.
  for (size_t k = 0; k < dispatch.count; ++k) {
    const Step& step = steps_[dispatch.first + k];
    if (step.chunks[1] && !step.packed) add_part(step, 0, args_[k]);
  }
  run_parts();
  if (dispatch.group) {
    run_group(dispatch);
    return std::nullopt;
  }
  for (size_t k = 0; k < dispatch.count; ++k) {
    const Step& step = steps_[dispatch.first + k];
    add_part(step, step.chunks[1] ? 1 : 0, args_[k]);
  }
  run_parts();
  return std::nullopt;
}

void CpuProgram::add_part(const Step& step, int phase, const KernelArgs& args) {
  parts_.push_back({&step, phase, part_chunks_, &args});
  part_chunks_ += step.chunks[phase];
}

void CpuProgram::run_part_chunk(void* program, uint32_t chunk, uint32_t thread) {
  const CpuProgram& p = *static_cast<const CpuProgram*>(program);
  size_t i = p.parts_.size() - 1;
  while (p.parts_[i].before > chunk) --i;
  const Part& part = p.parts_[i];
  part.step->kernel->phases[part.phase].run(part.args, chunk - part.before,
                                            part.step->chunks[part.phase], p.local_of(thread));
}

// Parts of one chunk each are too small to be worth another thread.
void CpuProgram::run_parts() {
  const bool small = part_chunks_ == parts_.size();
  if (small)
    for (uint32_t chunk = 0; chunk < part_chunks_; ++chunk) run_part_chunk(this, chunk, 0);
  else core_->pool.run(part_chunks_, run_part_chunk, this);
  parts_.clear();
  part_chunks_ = 0;
}

// ---------------------------------------------------------------- groups

// Elements of a rectangle of the result [M, N], row by row, or at once where the rows are whole.
static void follow(const accel_cpu::Kernel& kernel, const KernelArgs& args,
                   const accel_cpu::Rect& r, uint64_t width) {
  if (r.n0 == 0 && r.n1 == width) return kernel.span(&args, r.m0 * width, r.m1 * width);
  for (uint64_t m = r.m0; m < r.m1; ++m) kernel.span(&args, m * width + r.n0, m * width + r.n1);
}

void CpuProgram::run_piece(void* program, uint32_t chunk, uint32_t thread) {
  const CpuProgram& p = *static_cast<const CpuProgram*>(program);
  const Dispatch& group = *p.group_;
  const Step& head = p.steps_[group.first];
  const uint32_t* params = p.params_.data() + head.param;  // of every product M, K, N first
  const accel_cpu::Rect rect = head.kernel->owns(params, chunk, head.chunks[1]);
  for (size_t k = 0; k < group.count; ++k) {
    const Step& step = p.steps_[group.first + k];
    const accel_cpu::Kernel& kernel = *step.kernel;
    if (step.follows) {
      if (rect.n0 != rect.n1) follow(kernel, p.args_[k], rect, params[2]);
    } else {
      kernel.phases[1].run(&p.args_[k], chunk, head.chunks[1], p.local_of(thread));
    }
  }
}

void CpuProgram::run_group(const Dispatch& dispatch) {
  group_ = &dispatch;
  const uint32_t n = steps_[dispatch.first].chunks[1];
  if (n == 1) run_piece(this, 0, 0);
  else core_->pool.run(n, run_piece, this);
}

}  // namespace accel
