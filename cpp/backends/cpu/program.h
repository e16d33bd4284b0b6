// A plan compiled for the CPU: kernels resolved, scratch and arena allocated, commands ready to be
// walked.
#pragma once
#include <atomic>
#include <string>

#include "backends/cpu/kernel_api.h"
#include "backends/cpu/pool.h"
#include "exec/data_check.h"
#include "exec/memory.h"
#include "exec/worker_queue.h"

namespace accel {

// What a CPU device shares with its queues and programs.
class CpuCore : public WorkerHost {
 public:
  CpuCore(const CpuOptions& options, const accel_cpu::KernelTable& table, int threads);
  std::shared_ptr<void> allocate(int64_t bytes, const std::string& what) override {
    return allocate_zeroed(bytes, max_bytes, what);
  }
  void start() override { pool.start(); }
  void enter_worker() override { pool.enter_worker(); }
  // A waiter that spins on a machine full of workers takes a core from one of them.
  int64_t spin_ns() const override { return pool.uses_every_cpu() ? 5000 : 50000; }

  const CpuOptions options;
  const accel_cpu::KernelTable& table;
  Pool pool;
};

class CpuProgram : public Program {
 public:
  // Throws an internal error for a kernel that the table lacks, capacity errors for the memory.
  // The transients are the pool's where one is given.
  CpuProgram(std::shared_ptr<CpuCore> core, const PlanData& plan, TransientPoolPtr pool);
  ~CpuProgram() override;
  std::optional<Error> run(const Execution& execution) override;
  std::shared_ptr<void> arena() const override {
    return shared_arena_ ? shared_arena_->block() : arena_;
  }
  void* frequency_table(int i) const override { return tables_[size_t(i)].get(); }

 private:
  struct Step {
    const accel_cpu::Kernel* kernel;
    size_t operand, param, scalar;  // first of each in the flat lists
    uint32_t chunks[2];             // 0: no such phase
    int check;                      // of checks_, or -1
    int64_t shared;                 // offset of its scratch
    bool packed;                    // an earlier step of the dispatch leaves what its phase 0 would
    bool follows;                   // runs on pieces, in the chunks of the dispatch's products
  };
  // Steps that run together: one, some without a conflict, a group (plan/fuse.cc) or a chain
  // (plan/chain.cc).
  struct Dispatch {
    size_t first, count;
    bool group;
    size_t shares, n_shares;  // of shares_, thread by thread
    bool offers;              // from here on idle threads fetch what comes next
    bool chain = false;
    size_t result = 0, rows = 0;  // of a chain: the flat operand of its tokens, and how many
  };
  // Lines of a weight that a thread reads in the products of a dispatch.
  struct Share {
    uint32_t thread;
    size_t operand;
    int64_t offset, bytes;
  };
  // A phase of one step inside a dispatch, and the chunks of the dispatch before it.
  struct Part {
    const Step* step;
    int phase;
    uint32_t before;
    const accel_cpu::KernelArgs* args;
  };
  void resolve(const PlanData& plan);
  Step step_of(const Command& command, const accel_cpu::Kernel& kernel) const;
  void add_to_dispatch(const PlanData& plan, size_t step);
  void share_weights(const PlanData& plan);
  void share_columns(const PlanData& plan, size_t step, uint32_t before, uint32_t thread,
                     uint32_t chunks, int slice);
  void offer(const Dispatch& dispatch, const Execution& e);
  bool packs_as(const PlanData& plan, size_t step, size_t earlier) const;
  void add_check(const PlanData& plan, const Command& command, Step& step);
  void allocate(const PlanData& plan);
  void fill(void* arena) const;
  accel_cpu::KernelArgs args_of(const Step& step, const Execution& execution) const;
  std::optional<Error> check(const Step& step, const Execution& execution) const;
  std::optional<Error> run_step(const Step& step, const Execution& execution,
                                const Dispatch* dispatch = nullptr);
  std::optional<Error> run_dispatch(const Dispatch& dispatch, const Execution& execution);
  void add_part(const Step& step, int phase, const accel_cpu::KernelArgs& args);
  void run_parts();
  void run_group(const Dispatch& dispatch);
  std::optional<Error> run_chain(const Dispatch& dispatch, const Execution& execution);
  bool walk_chain(const Dispatch& dispatch, const Execution& execution);
  static void run_chain_row(void* program, uint32_t row, uint32_t thread);
  static void run_part_chunk(void* program, uint32_t chunk, uint32_t thread);
  static void run_piece(void* program, uint32_t chunk, uint32_t thread);
  void* local_of(uint32_t thread) const {
    return static_cast<char*>(local_.get()) + thread * local_stride_;
  }

  std::shared_ptr<CpuCore> core_;
  const TransientPoolPtr shared_arena_;
  std::vector<Step> steps_;
  std::vector<Dispatch> dispatches_;
  std::vector<Share> shares_;
  std::vector<DataCheck> checks_;  // empty unless the device was opened with check=True
  std::vector<uint32_t> params_;
  std::vector<int> scalar_index_;      // declared scalar of each kernel scalar, commands in turn
  std::vector<uint32_t> scalar_bits_;  // as the kernels read them
  int64_t shared_bytes_ = 0, local_stride_ = 0, arena_bytes_ = 0;
  std::shared_ptr<void> arena_, shared_, local_;
  std::vector<std::shared_ptr<void>> tables_;
  // Of the dispatch that runs.
  std::vector<accel_cpu::KernelArgs> args_;
  std::vector<Part> parts_;
  uint32_t part_chunks_ = 0;
  const Dispatch* group_ = nullptr;
  const Dispatch* chain_ = nullptr;
  std::vector<uint32_t> tokens_;  // of its rows: a row's token may lie where others' logits are
  std::atomic<bool> chain_fails_{false};
};

}  // namespace accel
