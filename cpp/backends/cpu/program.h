// A plan compiled for the CPU: kernels resolved, scratch and arena allocated, commands ready to be
// walked.
#pragma once
#include <string>

#include "backends/cpu/data_check.h"
#include "backends/cpu/kernel_api.h"
#include "backends/cpu/pool.h"
#include "exec/device.h"
#include "exec/worker_queue.h"

namespace accel {

// What a CPU device shares with its queues and programs.
class CpuCore : public WorkerHost {
 public:
  CpuCore(const CpuOptions& options, const accel_cpu::KernelTable& table, int threads);
  void start() override { pool.start(); }
  void enter_worker() override { pool.enter_worker(); }
  // A waiter that spins on a machine full of workers takes a core from one of them.
  int64_t spin_ns() const override { return pool.uses_every_cpu() ? 5000 : 50000; }

  const CpuOptions options;
  const accel_cpu::KernelTable& table;
  const int64_t max_bytes;
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
  };
  void resolve(const PlanData& plan);
  void add_check(const PlanData& plan, const Command& command, Step& step);
  void allocate(const PlanData& plan);
  void fill(void* arena) const;
  std::optional<Error> run_step(const Step& step, const Execution& execution);
  void run_phase(const Step& step, int phase, const accel_cpu::KernelArgs& args);

  std::shared_ptr<CpuCore> core_;
  const TransientPoolPtr shared_arena_;
  std::vector<Step> steps_;
  std::vector<DataCheck> checks_;  // empty unless the device was opened with check=True
  std::vector<uint32_t> params_;
  std::vector<int> scalar_index_;      // declared scalar of each kernel scalar, commands in turn
  std::vector<uint32_t> scalar_bits_;  // as the kernels read them
  int64_t shared_bytes_ = 0, local_stride_ = 0, arena_bytes_ = 0;
  std::shared_ptr<void> arena_, shared_, local_;
  std::vector<std::shared_ptr<void>> tables_;
};

}  // namespace accel
