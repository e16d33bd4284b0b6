// A plan compiled for CUDA: one graph of kernel nodes, instantiated, whose parameters hold every
// address. A run changes those of them that are others than in the run before, and launches it.
#pragma once
#include "backends/cuda/modules.h"
#include "backends/cuda/stream.h"
#include "exec/data_check.h"

namespace accel::cuda {

class CudaProgram : public Program {
 public:
  // Throws compile errors of the shaders, capacity errors for the memory, errors of the driver. The
  // transients are the pool's where one is given.
  CudaProgram(std::shared_ptr<Core> core, const PlanData& plan, TransientPoolPtr pool);
  ~CudaProgram() override;
  std::optional<Error> run(const Execution& execution) override;
  std::shared_ptr<void> arena() const override {
    return shared_arena_ ? shared_arena_->block() : arena_;
  }
  void* frequency_table(int i) const override { return tables_[size_t(i)].host.get(); }
  void* table_address(int i) const override { return tables_[size_t(i)].device.get(); }
  void table_filled(int i) override { tables_[size_t(i)].changed = true; }

 private:
  struct Graph {
    ~Graph();
    std::shared_ptr<Context> context;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
  };
  struct Node {
    CUfunction function;
    uint32_t groups[3], threads, group_bytes;
    size_t argument, arguments;  // of arguments_
    CUgraphNode node = nullptr;  // null: one of a run that another does
    int command;                 // or the last of a run
    bool barrier;                // waits for the launches before it
    bool early = true;  // may begin beside the launch before it: what it reads then is not written
  };
  // An address among the arguments that comes from the operand table.
  struct Patch {
    int command;            // of the entry
    size_t entry, address;  // of the table, of addresses_
    size_t node;
  };
  struct Table {
    std::shared_ptr<void> device;
    Pinned host;
    int64_t bytes = 0;
    bool changed = false;
  };
  // What check=True looks at before a command.
  struct Check {
    DataCheck rules;
    std::vector<int64_t> bytes;  // by operand
  };
  // An argument while arguments_ and what it points into still grow.
  struct Pending {
    bool params;
    size_t at;
  };
  void add_launches(const PlanData& plan, int command);
  void add_combined(const PlanData& plan, const Combined& combined, bool barrier);
  Node node_of(const Function& function, const Launch& launch, int command);
  // No more groups than fit on the device at once, where the launch says so.
  void bound_groups(const Launch& launch, CUfunction function, uint32_t* groups);
  void add_arguments(const PlanData& plan, const Function& function, int command,
                     const Launch& launch, Node& node, int64_t scalars);
  void add_check(const PlanData& plan, int command);
  void add_address(CUdeviceptr address);
  bool add_operand(const PlanData& plan, int command, size_t operand);
  void add_params(const Function& function, const std::vector<uint32_t>& words, size_t first);
  // What the graph has, in order, from all commands and what combines some of them.
  void order_graph(const PlanData& plan);
  void sort_patches();
  void leave_out_barrier();
  void allocate(const PlanData& plan);
  // Whether a command of the plan writes there.
  bool is_written(const Place& place) const;
  CUDA_KERNEL_NODE_PARAMS_v2 params_of(const Node& node);
  void add_node(Node& node, const std::vector<CUgraphNode>& before, bool launches);
  void make_graph();
  bool fills() const { return core_->options.debug_fill >= 0; }

  // run.cc, in the context.
  std::optional<Error> refresh(void* const* table);
  std::optional<Error> prepare(const Execution& execution, CUstream stream);
  std::optional<Error> fill(const Execution& execution, CUstream stream);
  std::optional<Error> run_in_steps(const Execution& execution, Stream& stream);
  std::optional<Error> launch_steps(const Execution& execution, Stream& stream,
                                    std::vector<CUevent>& marks);
  std::optional<Error> check_command(const Execution& execution, int command);
  std::optional<Error> failed(CUresult result, const char* call) {
    if (!result) return std::nullopt;
    return error_of(result, call);
  }
  Error error_of(CUresult result, const char* call);

  const std::shared_ptr<Core> core_;
  const TransientPoolPtr shared_arena_;
  std::shared_ptr<Context> context_;
  std::vector<Node> nodes_;             // those of the commands, and behind them the combined ones
  size_t steps_ = 0;                    // how many are of commands: traces and checks run these
  std::vector<size_t> in_graph_;        // nodes, in order
  std::vector<uint32_t> params_;        // of all launches
  std::vector<CUdeviceptr> addresses_;  // of all launches
  std::vector<Pending> pending_;
  std::vector<void*> arguments_;  // of all launches: into params_ and addresses_
  std::vector<Patch> patches_;    // by command
  std::vector<size_t> entries_;   // by command: its first of the table; then their number
  size_t n_entries_ = 0;
  std::vector<size_t> first_patch_;  // by command, then their number
  std::vector<void*> seen_;          // the table of the run before, if it is in the graph
  bool seen_any_ = false;
  std::vector<size_t> changed_;   // nodes with other parameters than the graph has
  std::vector<uint8_t> stale_;    // by node: its parameters are others than the graph has
  std::vector<uint8_t> written_;  // by slot: a command writes to its port
  std::vector<std::optional<Check>> checks_;  // by command; empty without check=True
  std::vector<int> scalar_index_;             // by word of the scalars: of the declared ones, or -1
  std::vector<uint32_t> sent_;                // scalars that the device has
  bool sent_any_ = false;
  int64_t arena_bytes_ = 0, scratch_bytes_ = 0;
  std::shared_ptr<void> arena_, scratch_, scalars_, nothing_;
  Pinned host_scalars_;
  std::vector<Table> tables_;
  Graph graph_;
  const std::shared_ptr<Pace> pace_ = std::make_shared<Pace>();
};

}  // namespace accel::cuda
