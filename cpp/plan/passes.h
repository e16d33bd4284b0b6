// The passes of the planner in order, each with its verifier. A pass edits the fields it names and
// looks at no device. A verifier throws an internal error that names pass and step.
#pragma once
#include "plan/core.h"
#include "plan/plan.h"

namespace accel::planner {

// infer: values, one a result of every recorded node, with its type.
void infer(PlanData& p);
void verify_infer(const PlanData& p);

// prune: kept, and drops the values of nodes that reach no output and no state write.
void prune(PlanData& p);
void verify_prune(const PlanData& p);

// pack_weights, by select: packings, and the layouts of the ports.
void pack_weights(PlanData& p);
// Whether the planes of the weight that a node reads are packed.
bool reads_packed(const PlanData& p, const Node& node);

// select: steps of the kept nodes with their kernel rows; selections of all recorded nodes.
// Throws unsupported_error.
void select(PlanData& p, const Progress& progress);
void verify_select(const PlanData& p);

// materialize: which values live in an output port; copy steps and their selections; rope's tables.
void materialize(PlanData& p);
void verify_materialize(const PlanData& p);

// order: record order of what is kept, copies right behind their producer.
void order(PlanData& p);
void verify_order(const PlanData& p);

// chain: runs of steps that make up a sampling chain; of which a line is added to the selections.
// Nothing without Limits::fuse.
void chain(PlanData& p);
void verify_chain(const PlanData& p);

// fuse: groups of steps; of which a line is added to the selections. Nothing without Limits::fuse.
void fuse(PlanData& p);
void verify_fuse(const PlanData& p);
// Held to the bytes, when places are known: no step of a group touches what an earlier one touches,
// but for the very elements of a result.
void verify_fused_places(const PlanData& p);

// combine: groups of steps that one launch of CUDA does; of which a line is added to the
// selections. Nothing without Limits::fuse.
void combine(PlanData& p);
void verify_combine(const PlanData& p);
// Held to the bytes, when places are known: steps of a run share none but those of a value that one
// hands to another.
void verify_combined_places(const PlanData& p);

// live: users of each value.
void live(PlanData& p);
void verify_live(const PlanData& p);

// ports: one slot a used range of a port. Throws graph_error for mixed ranges (CONTRACT 7).
void ports(PlanData& p);
void verify_ports(const PlanData& p);

// alias: arena offsets and the memory report. Throws capacity_error. alias_apart reuses nothing.
void alias(PlanData& p);
void alias_apart(PlanData& p);
void verify_alias(const PlanData& p);

// place: where each operand's bytes are.
void place(PlanData& p);
void verify_place(const PlanData& p);

// barriers: steps that need one before them. barriers_everywhere is the naive plan's.
void barriers(PlanData& p);
void barriers_everywhere(PlanData& p);
void verify_barriers(const PlanData& p);

// record: commands and the kernels they name.
void record(PlanData& p, const Progress& progress);
void verify_record(const PlanData& p);

// ---------------------------------------------------------------- what passes share

[[noreturn]] void fail(const char* pass, const PlanData& p, int step, const std::string& text);

bool is_copy(const Step& step);
// A step that runs on each piece of what the products of its group write.
bool follows(const Step& step);
// Index of a recorded node's result in values, or -1 when it was pruned.
class ValueIndex {
 public:
  explicit ValueIndex(const PlanData& p);
  int of(const Source& s) const;
  int of(int node, int result) const;

 private:
  std::vector<int> first_;
};

// Elements [begin, end) of its source that an operand touches; a stride of 0 adds nothing.
struct Hull {
  int64_t begin = 0, end = 0;
};
Hull hull_of(const Shape& shape, const Strides& strides, int64_t offset);

// What a slot of a step reads or writes: a value, or a range of a port. For a copy: its value.
struct Operand {
  bool present = false, write = false;
  int value = -1;  // index of values, or
  int port = -1;   // a port and the range of it that is named
  int64_t begin = 0, count = 0;
  DType dtype = DType::F32;
  Hull hull;  // elements from the source's start
};
// By input slot, then by result. A written state counts as read too.
std::vector<Operand> operands_of(const PlanData& p, const ValueIndex& index, const Step& step);

// Bytes that steps touch, before any memory is assigned: resource v is value v, values + port a
// port.
std::vector<Touches> dag_touches(const PlanData& p);
// Bytes that steps touch in memory, from their places: resource 0 is the arena, 1 + port a port.
std::vector<Touches> memory_touches(const PlanData& p);

// Transients of the plan, and the index of the value behind each.
std::vector<Transient> transients_of(const PlanData& p, std::vector<int>& values);

int table_of(const PlanData& p, const Call& call);  // rope's frequency table, or -1
// The slot of a range of a port, or -1.
int slot_of(const PlanData& p, int port, int64_t begin, int64_t count);

}  // namespace accel::planner
