// Private parts of Runtime, Plan and Bindings, shared by the files of this folder.
#pragma once
#include <set>
#include <string_view>

#include "runtime/runtime.h"

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

// The prepared form of one set of bindings. A submission in flight holds it through `hold`; whoever
// wants to change it then makes a copy.
struct BindingTable {
  std::vector<void*> entries;     // what Program::run takes
  std::vector<BufferView> views;  // by port
  std::vector<char*> base;        // by port: address of the view
  std::shared_ptr<Hold> hold = std::make_shared<Hold>();
  uint64_t open_under = 0;  // close_generation() under which every buffer was found open
};
using TablePtr = std::shared_ptr<BindingTable>;

struct Plan::Impl {
  RuntimePtr runtime;
  PlanData data;
  std::unique_ptr<Program> program;
  // Set once by prepare().
  std::map<std::string_view, int> port_index, scalar_index;
  std::vector<PortUse> uses;   // by port
  std::vector<void*> entries;  // arena and frequency tables filled in, ports null

  std::mutex mutex;
  std::atomic<bool> closed{false};
  std::atomic<bool> in_flight{false};
  QueuePtr default_queue;
  // Of the submission in flight: written at submit, when nothing runs.
  std::vector<uint32_t> scalars;
  std::vector<uint32_t> table_bits;  // scalar that each frequency table was filled for
  std::vector<uint8_t> table_filled;

  void prepare();
  void fill_tables();
  void* address(const Place& place, size_t entry);  // of one entry; ports are noted as patches

  // bind.cc. Each adds the problems it finds.
  using Problems = std::vector<Problem>;
  void check_view(int port, const BufferView& view, Problems& problems) const;
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
