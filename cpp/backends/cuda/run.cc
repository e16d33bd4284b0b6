// Running a program: what differs from the run before is brought up to date, the graph is launched,
// and the stream tells the end.
#include <cstring>
#include <utility>

#include "backends/cuda/errors.h"
#include "backends/cuda/program.h"
#include "backends/cuda/transfer.h"
#include "exec/park.h"

namespace accel::cuda {

// Parameters of the nodes whose addresses are others than in the run before. A table is compared as
// a whole first: most runs have the one of the run before. A change that fails leaves no table that
// the graph is known to have, so the next run looks at every address.
std::optional<Error> CudaProgram::refresh(void* const* table) {
  if (seen_.empty()) return std::nullopt;
  const auto is_seen = [&](size_t first, size_t n) {
    return std::memcmp(table + first, &seen_[first], n * sizeof(void*)) == 0;
  };
  if (seen_any_ && is_seen(0, seen_.size())) return std::nullopt;
  const bool seen = std::exchange(seen_any_, false);
  for (size_t c = 0; c + 1 < entries_.size(); ++c) {
    const size_t first = entries_[c], n = entries_[c + 1] - first;
    if (n == 0 || (seen && is_seen(first, n))) continue;
    for (size_t i = first_patch_[c]; i < first_patch_[c + 1]; ++i) {
      const Patch& p = patches_[i];
      const CUdeviceptr address = device_pointer(table[p.entry]);
      if (addresses_[p.address] == address) continue;
      addresses_[p.address] = address;
      // What only steps run is no node of the graph.
      if (nodes_[p.node].node && !std::exchange(stale_[p.node], 1)) changed_.push_back(p.node);
    }
  }
  for (; !changed_.empty(); changed_.pop_back()) {
    const CUDA_KERNEL_NODE_PARAMS_v2 params = params_of(nodes_[changed_.back()]);
    const CUgraphNode node = nodes_[changed_.back()].node;
    if (auto bad = failed(core_->api.GraphExecKernelNodeSetParams(graph_.exec, node, &params),
                          "cuGraphExecKernelNodeSetParams"))
      return bad;
    stale_[changed_.back()] = 0;
  }
  std::memcpy(seen_.data(), table, seen_.size() * sizeof(void*));
  seen_any_ = true;
  return std::nullopt;
}

// The run before has ended, so no copy reads the host's side now. What the device has is left.
std::optional<Error> CudaProgram::prepare(const Execution& e, CUstream stream) {
  bool differs = !sent_any_ && !sent_.empty();
  for (size_t i = 0; i < scalar_index_.size(); ++i) {
    if (scalar_index_[i] < 0) continue;
    const uint32_t word = e.scalars[scalar_index_[i]];
    differs |= word != sent_[i];
    sent_[i] = word;
  }
  if (differs) {
    sent_any_ = false;
    const size_t bytes = sent_.size() * sizeof(uint32_t);
    std::memcpy(host_scalars_.get(), sent_.data(), bytes);
    if (auto bad = failed(core_->api.MemcpyHtoDAsync(device_pointer(scalars_.get()),
                                                     host_scalars_.get(), bytes, stream),
                          "cuMemcpyHtoDAsync"))
      return bad;
    sent_any_ = true;
  }
  for (Table& table : tables_) {
    if (!table.changed) continue;
    if (auto bad = failed(core_->api.MemcpyHtoDAsync(device_pointer(table.device.get()),
                                                     table.host.get(), size_t(table.bytes), stream),
                          "cuMemcpyHtoDAsync"))
      return bad;
    table.changed = false;
  }
  return fills() ? fill(e, stream) : std::nullopt;
}

// Overwrites what a submission finds in its transients and scratch.
std::optional<Error> CudaProgram::fill(const Execution& e, CUstream stream) {
  const auto byte = uint8_t(core_->options.debug_fill);
  const auto over = [&](const std::shared_ptr<void>& memory, int64_t bytes) {
    if (!bytes) return std::optional<Error>();
    return failed(
        core_->api.MemsetD8Async(device_pointer(memory.get()), byte, size_t(bytes), stream),
        "cuMemsetD8Async");
  };
  if (auto bad = over(e.arena, arena_bytes_)) return bad;
  return over(scratch_, scratch_bytes_);
}

std::optional<Error> CudaProgram::run(const Execution& e) {
  auto claim = std::make_shared<TransientPool::Claim>(shared_arena_, e.queue);
  if (claim->refused()) return claim->refused();
  Stream& stream = *static_cast<CudaQueue*>(e.queue)->stream;
  const Current current(*context_);
  if (auto bad = failed(current.result, "cuCtxPushCurrent")) return bad;
  const bool in_steps = core_->options.check || e.command_ns;
  const CUevent mark = in_steps ? nullptr : stream.mark();
  auto bad = refresh(e.table);
  if (!bad) bad = prepare(e, stream.handle());
  if (!bad && in_steps) bad = run_in_steps(e, stream);
  else if (!bad && !nodes_.empty())
    bad = failed(core_->api.GraphLaunch(graph_.exec, stream.handle()), "cuGraphLaunch");
  if (bad || in_steps) {
    if (mark) stream.give_back(mark);
    if (bad) stream.settle();
    return bad;
  }
  Done done = e.later.take();
  Stream::Expected expected{pace_, pace_->usual(), {}};
  if (expected.usual > Core::kSpinNs) expected.near = e.later.far();
  stream.end(
      mark,
      [claim, done = std::move(done)](std::optional<Error> error) mutable {
        claim.reset();
        done(std::move(error));
      },
      std::move(expected));
  return std::nullopt;
}

// ---------------------------------------------------------------- one by one

// The operands that the rules name, brought to the host.
std::optional<Error> CudaProgram::check_command(const Execution& e, int command) try {
  const Check& check = *checks_[size_t(command)];
  void* const* const from = e.table + entries_[size_t(command)];
  std::vector<std::vector<char>> held(check.bytes.size());
  std::vector<void*> operands(check.bytes.size());
  const auto bring = [&](int slot) {
    if (slot < 0 || !from[slot] || operands[size_t(slot)]) return;
    auto& bytes = held[size_t(slot)];
    bytes.resize(size_t(check.bytes[size_t(slot)]));
    core_->transfer().out(bytes.data(), from[slot], int64_t(bytes.size()));
    operands[size_t(slot)] = bytes.data();
  };
  for (const DataRule& rule : check.rules.call.def->checks) {
    bring(rule.slot);
    bring(rule.factors);
    bring(rule.kind == DataRule::pages ? rule.lengths : -1);
  }
  return check_data(check.rules, operands.data());
} catch (const Error& error) { return error; }

std::optional<Error> CudaProgram::launch_steps(const Execution& e, Stream& stream,
                                               std::vector<CUevent>& marks) {
  const Driver& api = core_->api;
  const auto note = [&]() -> std::optional<Error> {
    if (!e.command_ns) return std::nullopt;
    CUevent mark = nullptr;
    if (auto bad = failed(api.EventCreate(&mark, 0), "cuEventCreate")) return bad;
    marks.push_back(mark);
    return failed(api.EventRecord(mark, stream.handle()), "cuEventRecord");
  };
  if (auto bad = note()) return bad;
  for (size_t i = 0; i < steps_; ++i) {
    Node& node = nodes_[i];
    const bool begins = i == 0 || nodes_[i - 1].command != node.command;
    if (begins && !checks_.empty() && checks_[size_t(node.command)]) {
      if (auto bad = stream.finish()) return bad;
      if (auto bad = check_command(e, node.command)) return bad;
    }
    if (auto bad =
            failed(api.LaunchKernel(node.function, node.groups[0], node.groups[1], node.groups[2],
                                    node.threads, 1, 1, node.group_bytes, stream.handle(),
                                    arguments_.data() + node.argument, nullptr),
                   "cuLaunchKernel"))
      return bad;
    if (i + 1 < steps_ && nodes_[i + 1].command == node.command) continue;
    if (auto bad = note()) return bad;
  }
  return std::nullopt;
}

// For whoever looks at values or at the clock between commands. The stream keeps them in order.
std::optional<Error> CudaProgram::run_in_steps(const Execution& e, Stream& stream) {
  // Before the first look, what runs on the stream must be over.
  if (auto bad = stream.finish()) return bad;
  const int64_t start = now_ns();
  std::vector<CUevent> marks;
  auto bad = launch_steps(e, stream, marks);
  if (!bad) bad = stream.finish();
  for (size_t i = 0; !bad && i < marks.size(); ++i) {
    float ms = 0;
    bad = failed(core_->api.EventElapsedTime(&ms, marks[0], marks[i]), "cuEventElapsedTime");
    if (!bad) e.command_ns->push_back(start + int64_t(double(ms) * 1e6));
  }
  if (bad) stream.settle();
  for (const CUevent mark : marks) core_->api.EventDestroy(mark);
  return bad;
}

}  // namespace accel::cuda
