// Private parts of Runtime, Plan and Bindings, shared by the files of this folder.
#pragma once
#include <set>
#include <string_view>

#include "runtime/runtime.h"
#include "runtime/trace.h"

namespace accel {

struct Runtime::Impl {
  DevicePtr device;
  std::mutex mutex;  // closed, open_plans, kernels
  bool closed = false;
  int64_t open_plans = 0;
  std::set<std::string> kernels;  // prepared once each
  std::atomic<int64_t> built{0}, planned{0}, pipelines{0};

  void open_plan();  // throws lifetime when closed
  void close_plan();
  void count_pipelines(const PlanData& data);
};

// What binding one port means for the flat operand table.
struct PortUse {
  struct Patch {
    size_t entry;    // of the table
    int64_t offset;  // bytes from the bound range's start
  };
  std::vector<Patch> patches;
  std::vector<int> slots;  // of PlanData::slots
  bool written = false;
};

// One address an operand, as one graph instance takes them, and the transients they were made for.
struct Operands {
  std::vector<void*> entries;
  void* arena = nullptr;
};

// The prepared form of one set of bindings. A submission in flight holds it through `hold`; whoever
// wants to change it then makes a copy.
struct BindingTable {
  std::vector<Operands> operands;  // by graph instance; empty until one takes this set
  std::vector<BufferView> views;   // by port
  std::vector<char*> base;         // by port: address of the view
  std::shared_ptr<Hold> hold = std::make_shared<Hold>();
  uint64_t open_under = 0;  // close_generation() under which every buffer was found open
};
using TablePtr = std::shared_ptr<BindingTable>;

// What one submission at a time needs for itself: transients, tables, scalars. Made when the first
// submission needs it.
struct GraphInstance {
  std::unique_ptr<Program> program;
  // Of the submission in flight: written at submit, when nothing runs.
  std::vector<uint32_t> scalars;
  std::vector<uint32_t> table_bits;  // scalar that each frequency table was filled for
  std::vector<uint8_t> table_filled;
  std::atomic<bool> in_flight{false};
  std::weak_ptr<Fence> fence;  // of its last submission
};

struct Plan::Impl {
  RuntimePtr runtime;
  PlanData data;
  // Its deployment from the start; the rest, a third of a compilation and as many bytes as the
  // graph, once somebody asks.
  std::once_flag identity_once;
  Identity identity;
  int64_t max_in_flight = 1;
  TransientPoolPtr pool;
  // Set once by prepare(). Entries of the operand table by what their address comes from.
  std::map<std::string_view, int> port_index, scalar_index;
  std::vector<PortUse> uses;                                 // by port
  std::vector<PortUse::Patch> arena_entries, table_entries;  // of a table: its index for an offset
  size_t n_entries = 0;

  std::mutex mutex;
  std::atomic<bool> closed{false};
  std::mutex closing;  // held by whoever closes; taken before `mutex`
  bool dying = false;  // the destructor closes
  std::atomic<int64_t> in_flight{0};
  std::vector<std::unique_ptr<GraphInstance>> instances;  // the first is made by compile
  QueuePtr default_queue;
  std::shared_ptr<Trace> trace;  // while submissions are traced

  void prepare();
  void make_program(GraphInstance& instance);
  void fill_tables(GraphInstance& instance);
  void note_entry(const Place& place, size_t entry);
  // The table's operands for an instance, made or made anew where its transients have moved.
  const Operands& operands_for(BindingTable& table, size_t instance, void* arena) const;

  // bind.cc. Each adds the problems it finds.
  using Problems = std::vector<Problem>;
  void check_view(int port, const BufferView& view, Problems& problems) const;
  // Without the layout: what a view that pack() reads must be.
  void check_plane(int port, const BufferView& view, Problems& problems) const;
  bool check_scalar(const std::string& name, const ScalarValue& value, Problems& problems) const;
  void check_all_overlaps(const BindingTable& table, Problems& problems) const;
  void check_overlaps_of(const BindingTable& table, int port, Problems& problems) const;
  int port_of(const std::string& name, Problems& problems) const;  // -1 when unknown
  void put(BindingTable& table, int port, const BufferView& view) const;
  TablePtr bind_buffers(const BindingMap& buffers, Problems& problems) const;
  std::vector<uint32_t> bind_scalars(const ScalarMap& values, Problems& problems) const;
  std::string port_text(int port) const;
};

struct Bindings::Impl {
  PlanPtr plan;
  TablePtr table;
  std::vector<uint32_t> scalars;  // bits, in declaration order
};

}  // namespace accel
