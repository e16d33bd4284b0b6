// Running the dispatches of a program: one step, several without a conflict, or a group whose
// elementwise steps follow its products piece by piece.
#include <algorithm>
#include <cstring>

#include "backends/cpu/program.h"

namespace accel {

using accel_cpu::KernelArgs;

static constexpr size_t kMask = 2;  // the top-k mask among the steps of a chain; its kernel walks

KernelArgs CpuProgram::args_of(const Step& step, const Execution& e) const {
  return {e.table + step.operand, params_.data() + step.param, scalar_bits_.data() + step.scalar,
          static_cast<char*>(shared_.get()) + step.shared};
}

std::optional<Error> CpuProgram::check(const Step& step, const Execution& e) const {
  if (step.check < 0) return std::nullopt;
  return check_data(checks_[size_t(step.check)], e.table + step.operand);
}

// By itself, whatever its dispatch: nothing is packed for it.
std::optional<Error> CpuProgram::run_step(const Step& step, const Execution& e,
                                          const Dispatch* dispatch) {
  if (auto bad = check(step, e)) return bad;
  args_.assign(1, args_of(step, e));
  for (int phase = 0; phase < 2 && step.chunks[phase]; ++phase) {
    if (dispatch && !(phase == 0 && step.chunks[1])) offer(*dispatch, e);
    add_part(step, phase, args_[0]);
    run_parts();
  }
  return std::nullopt;
}

// ---------------------------------------------------------------- what comes next

static constexpr int64_t kShareBytes = 256 << 10;  // of one thread; a part of its second cache
static constexpr uint32_t kShareThreads = 8;  // more would cost the dispatching thread too much
static constexpr uint32_t kShareRows = 4;     // products of more rows do not wait for memory
static constexpr int kSlices = 2;

// Of the columns that thread `thread` owns in the products of each dispatch: a quarter, then the
// rest, because planes are read side by side.
void CpuProgram::share_weights(const PlanData& plan) {
  const uint32_t threads = uint32_t(core_->pool.threads());
  if (threads == 1 || threads > kShareThreads || dispatches_.empty()) return;
  for (Dispatch& d : dispatches_) {
    d.shares = shares_.size();
    uint32_t chunks = 0;
    for (size_t i = d.first; i < d.first + d.count; ++i)
      if (steps_[i].kernel->owns)
        chunks = d.group ? steps_[i].chunks[1] : chunks + steps_[i].chunks[1];
    for (uint32_t t = 0; chunks && t < threads; ++t) {
      for (int slice = 0; slice < kSlices; ++slice) {
        uint32_t before = 0;
        for (size_t i = d.first; i < d.first + d.count; ++i) {
          if (!steps_[i].kernel->owns) continue;
          share_columns(plan, i, before, t, chunks, slice);
          if (!d.group) before += steps_[i].chunks[1];
        }
      }
    }
    d.n_shares = shares_.size() - d.shares;
    d.offers = d.n_shares != 0;
  }
  dispatches_[0].offers = !shares_.empty();
}

void CpuProgram::share_columns(const PlanData& plan, size_t i, uint32_t before, uint32_t thread,
                               uint32_t chunks, int slice) {
  const Step& step = steps_[i];
  const uint32_t* params = params_.data() + step.param;  // M, K, N, nk
  const uint32_t T = uint32_t(core_->pool.threads());
  if (!params[3] || params[0] > kShareRows) return;
  const uint64_t begin = uint64_t(chunks) * thread / T, end = uint64_t(chunks) * (thread + 1) / T;
  const uint64_t lo = std::max<uint64_t>(begin, before),
                 hi = std::min<uint64_t>(end, before + step.chunks[1]);
  if (lo >= hi) return;
  const auto& rect = step.kernel->owns;
  const int64_t n0 = rect(params, uint32_t(lo - before), step.chunks[1]).n0,
                n1 = rect(params, uint32_t(hi - 1 - before), step.chunks[1]).n1;
  if (n0 >= n1) return;
  const int64_t cut = n0 + (n1 - n0) / 4, from = slice ? cut : n0, to = slice ? n1 : cut;
  const std::vector<Place>& operands = plan.commands[i].operands;
  for (size_t k = 1; k + 1 < operands.size(); ++k) {
    const int64_t row = operands[k].bytes / params[2];
    if (operands[k].kind != Place::port || row < 4) continue;
    const int64_t bytes = std::min(row * (to - from), kShareBytes);
    shares_.push_back({thread, step.operand + k, row * from, bytes});
  }
}

// To idle threads, what they will read in the products after this dispatch.
void CpuProgram::offer(const Dispatch& dispatch, const Execution& e) {
  if (!dispatch.offers) return;
  const Dispatch* next = &dispatch + 1;
  const Dispatch* const end = dispatches_.data() + dispatches_.size();
  while (next != end && !next->n_shares) ++next;
  size_t i = next == end ? 0 : next->shares;
  const size_t last = next == end ? 0 : i + next->n_shares;
  for (uint32_t t = 0; t < uint32_t(core_->pool.threads()); ++t) {
    Pool::Lines lines[Pool::kRanges];
    size_t n = 0;
    int64_t room = kShareBytes;
    for (; i < last && shares_[i].thread == t; ++i) {
      const Share& s = shares_[i];
      const int64_t bytes = std::min(s.bytes, room);
      if (n == Pool::kRanges || !bytes) continue;
      lines[n++] = {static_cast<const char*>(e.table[s.operand]) + s.offset, uint32_t(bytes / 64)};
      room -= bytes;
    }
    core_->pool.fetch_when_idle(t, lines, n);
  }
}

// ---------------------------------------------------------------- several steps at once

std::optional<Error> CpuProgram::run_dispatch(const Dispatch& dispatch, const Execution& e) {
  if (dispatch.chain) return run_chain(dispatch, e);
  if (dispatch.count == 1) return run_step(steps_[dispatch.first], e, &dispatch);
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
  offer(dispatch, e);
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

// ---------------------------------------------------------------- chains

void CpuProgram::run_chain_row(void* program, uint32_t row, uint32_t thread) {
  CpuProgram& p = *static_cast<CpuProgram*>(program);
  const Dispatch& chain = *p.chain_;
  if (p.chain_fails_.load(std::memory_order_relaxed)) return;
  const accel_cpu::Kernel& kernel = *p.steps_[chain.first + kMask].kernel;
  if (!kernel.chain_row(p.args_.data(), uint32_t(chain.count), row, &p.tokens_[row],
                        p.local_of(thread)))
    p.chain_fails_.store(true, std::memory_order_relaxed);
}

bool CpuProgram::walk_chain(const Dispatch& dispatch, const Execution& e) {
  const accel_cpu::Kernel& kernel = *steps_[dispatch.first + kMask].kernel;
  if (!kernel.chain_rows) return false;
  const uint32_t rows = kernel.chain_rows(args_.data(), uint32_t(dispatch.count));
  if (rows != dispatch.rows) return false;
  chain_ = &dispatch;
  chain_fails_.store(false, std::memory_order_relaxed);
  if (rows == 1) run_chain_row(this, 0, 0);
  else core_->pool.run(rows, run_chain_row, this);
  if (chain_fails_.load(std::memory_order_relaxed)) return false;
  std::memcpy(e.table[dispatch.result], tokens_.data(), rows * sizeof(uint32_t));
  return true;
}

// The walk, which takes most rows, or else command by command. It writes nothing before all its
// rows are known.
std::optional<Error> CpuProgram::run_chain(const Dispatch& dispatch, const Execution& e) {
  args_.clear();
  for (size_t k = 0; k < dispatch.count; ++k) {
    const Step& step = steps_[dispatch.first + k];
    if (auto bad = check(step, e)) return bad;
    args_.push_back(args_of(step, e));
  }
  offer(dispatch, e);
  if (walk_chain(dispatch, e)) return std::nullopt;
  for (size_t k = 0; k < dispatch.count; ++k)
    if (auto bad = run_step(steps_[dispatch.first + k], e)) return bad;
  return std::nullopt;
}

}  // namespace accel
