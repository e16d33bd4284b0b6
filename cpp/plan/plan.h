// What will happen, as data. The passes fill these fields one after another; no device is touched.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "ops/opdef.h"

namespace accel {

// Where an operand's bytes are when a command runs.
struct Place {
  enum Kind : uint8_t {
    none,   // an absent optional operand
    arena,  // a transient: offset into the plan's arena
    port,   // slot `index` of PlanData::slots, byte offset inside it
    table,  // PlanData::tables[index]: host-filled, private to the plan, never aliased
  } kind = none;
  int index = 0;
  int64_t offset = 0;  // bytes
  int64_t bytes = 0;   // bytes that the command may touch from there
};

// One used range of a port. A port used whole has one slot; layers of a state have one each:
// "k[0:4096]".
struct PortSlot {
  int port = 0;
  int64_t begin = 0, count = 0;  // elements
  bool read = false, written = false;
};

// Rope's frequencies f_k = f32(exp(-2k / rotary_dim * ln base)), filled by the host whenever its
// scalar changes (CONTRACT 11.3). One a (scalar, rotary_dim).
struct FrequencyTable {
  int scalar = 0;
  int64_t rotary_dim = 0;
};

struct Selection {
  std::string op, kernel, reason;
  std::vector<std::string> rejected;
  int node = 0;  // graph node id
  Site site;
};

// A computed value: result `result` of node `node`.
struct Value {
  int node = 0, result = 0;  // result -1: a copy of an operand of `node`
  Type type;
  int output_port = -1;       // lives in this output port's buffer; otherwise in the arena
  int64_t arena_offset = -1;  // bytes, after alias
  std::vector<int> users;     // steps that touch it, its writer first (after live)
};

// One step of the order: a graph node, or a copy that materialize added.
struct Step {
  int node = 0;  // graph node id; the node whose value is copied, for a copy
  const OpDef* def = nullptr;
  Call call;
  const KernelRow* row = nullptr;
  std::vector<Place> places;                   // by input slot, then by result (after record)
  std::vector<int> reads_value, writes_value;  // indices into PlanData::values
  // A node that reads the state range it writes reads a copy made just before it: its value by
  // input slot, or -1; empty where there is none. Such a copy names the slot, others have -1.
  std::vector<int> operand_copies;
  int copied_slot = -1;
  // The first step of the group that it belongs to, or -1: products cut alike, and elementwise
  // steps that follow them on each piece of their results (fuse); or what one launch does
  // (combine).
  int group = -1;
  // The first step of the sampling chain that it belongs to, or -1 (chain).
  int chain = -1;
  bool barrier_before = false;
};

struct Command {
  const KernelRow* row = nullptr;
  std::vector<Place> operands;   // by input slot, then by result
  std::vector<uint32_t> params;  // a struct of shaders/shared/params
  std::vector<int> scalars;      // indices of declared scalars, in attribute order
  bool barrier_before = false;
  int step = 0;
  // Commands of one dispatch start together. One that follows runs on each piece of what the
  // products of its dispatch have just written. Those of a chain may be walked at once; otherwise
  // they run one after another.
  int dispatch = 0;
  bool follows = false, chained = false;
  // On a GPU, in order, with where their scratch begins in that of the plan.
  Launches launches;
  int64_t scratch_offset = 0;
};

// One launch that does the work of the steps first .. last, which are a group of their own.
struct Combined {
  int first = 0, last = 0;
  Launch launch;
  std::vector<uint32_t> params;
  // By place: a step and an operand of it, input slots and then results. Step -1: an absent one.
  std::vector<std::pair<int, int>> operands;
};

struct GraphMemory {
  int64_t unaliased_bytes = 0;  // sum of aligned sizes
  int64_t peak_bytes = 0;       // interval peak in the order
  int64_t transient_bytes = 0;  // allocated
};

struct PlanData {
  std::string label;
  Limits limits;
  Graph graph;
  std::vector<PortSlot> slots;
  std::vector<Packing> packings;  // by port, as PortDesc::layout names it; empty without packing
  std::vector<FrequencyTable> tables;
  std::vector<int> kept;    // node ids that reach an output or a state (prune)
  std::vector<Step> steps;  // in order
  std::vector<Value> values;
  std::vector<Selection>
      selections;  // one a recorded node in record order, its copies right behind it
  std::vector<Command> commands;
  std::vector<Combined> combined;  // in order; on CUDA with Limits::fuse
  std::vector<const KernelRow*>
      pipelines;  // the kernels that the commands name, each once, by first use
  GraphMemory memory;
  int64_t scratch_bytes = 0;  // of the launches, beside the arena
};

// stage is one of check, select, plan, pipelines, record.
using Progress = std::function<void(const std::string& stage, int done, int total)>;

// The passes in order, each followed by its verifier when `verify` (always in tests and Debug
// builds). Throws unsupported_error with the node's line when no kernel takes a node.
PlanData make_plan(Graph graph, const Limits& limits, const Progress& progress = {},
                   bool verify = false);
// The first passes only: which kernel takes each node, and what is rejected.
PlanData select_kernels(Graph graph, const Limits& limits);
// No reuse of memory and a barrier before every step: the oracle of the planner.
PlanData make_naive_plan(Graph graph, const Limits& limits);

// How a call's reduction is cut, where its kernel cuts one: part of what its bits depend on.
struct Blocks {
  int64_t size = 0;   // positions of one block, 0 without blocks
  int64_t count = 0;  // blocks of the longest row
  int64_t splits = 1;
};
Blocks blocks_of(const Call& call);

// "k" for a port used whole, "k[0:4096]" for a range of one.
std::string slot_name(const PlanData& plan, int slot);

std::string explain(const PlanData& plan);

}  // namespace accel
