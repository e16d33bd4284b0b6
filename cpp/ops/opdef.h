// What an operator is, as data: operands, attributes, shape rule, kernel rows. One OpDef an
// operator.
#pragma once
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/shape.h"

namespace accel {

enum class Op : uint16_t {
#define OP(n) n,
#include "ops/list.inc"
#undef OP
};

enum class Backend : uint8_t { cpu, metal, cuda };
const char* name_of(Backend b);

// A device as numbers, so that selection runs on any machine.
struct Limits {
  Backend backend = Backend::cpu;
  std::string isa = "base";  // CPU kernel table: base, avx2, avx512, neon
  int threads = 1;
  int64_t alignment = 64;                // of arena offsets, bytes
  int64_t max_bytes = int64_t(1) << 40;  // of one buffer or arena
  bool pack = false;                     // kernel rows may name a layout of their own for weights
  bool fuse = false;                     // the executor runs groups of steps piece by piece
  bool simd_groups = true;               // a GPU whose SIMD groups exchange values
  int64_t group_bytes =
      0;                // memory that a launch may give to a group of a GPU, besides the kernel's
  bool matrix = false;  // products of CUDA may take matrix units, whose bits are not the CPU's
};

// ---------------------------------------------------------------- operands

// A bundle stands for several slots: Int4 gives codes, scales, zeros, biases (exactly one of the
// last two); Quantized gives quants, scales. Its slots are named "w.codes" and so on. A weight is a
// tensor, an Int4 or a Quantized: slots "w", "w.codes", "w.scales", "w.zeros", "w.biases",
// "w.quants". Tensors is any number of them, two or more: slots "xs[0]", "xs[1]", ...; the only
// operand of its operator.
enum class SlotKind : uint8_t { tensor, state, int4, quantized, weight, tensors };

struct OperandSpec {
  const char* name;
  const char* doc;
  SlotKind kind = SlotKind::tensor;
  bool optional = false;          // keyword-only, None by default
  const char* keyword = nullptr;  // not null: keyword-only although required
  bool positional = false;        // optional, but stands behind the required ones
};

// One slot of a recorded call: the type and layout of what was passed, or absent.
struct In {
  bool present = false;
  bool state = false;
  DType dtype = DType::F32;
  Shape shape;
  Strides strides;
  int64_t offset = 0;
  bool contiguous() const { return is_contiguous(shape, strides, offset); }
};

// ---------------------------------------------------------------- attributes

enum class AttrType : uint8_t {
  integer,
  real,
  text,
  flag,
  dtype,
  ints,
  scalar_f32,
  scalar_u32,  // names a declared scalar; resolved when recorded
};

struct AttrSpec {
  const char* name;
  AttrType type;
  const char* doc;
  bool required = true;     // a required one left out is a diagnostic
  bool positional = false;  // stands behind the operands; otherwise keyword-only
  const char* fallback =
      nullptr;        // default of an optional one, as Python writes it ("-1", "'kn'", "None")
  bool late = false;  // a scalar whose declaration is looked at behind OpDef::rest
};

struct Attr {
  bool set = false;
  int64_t i = 0;
  float f = 0;  // rounded on entry
  bool b = false;
  DType dtype = DType::F32;
  std::string s;  // text, or the scalar's name
  std::vector<int64_t> v;
  int scalar = -1;  // index of the declared scalar
};

struct OpDef;

// One call as the shape rule and the kernel rows see it.
struct Call {
  const OpDef* def = nullptr;
  std::vector<In> in;       // by slot, absent ones included
  std::vector<Attr> attrs;  // by attribute of the definition
  int64_t weights = 0;      // of an Int4 bundle
  int64_t group = 0;
  bool packed = false;        // the planes of the weight stand in the layout that a row packs
  std::vector<Type> results;  // filled after infer
  const Attr& attr(int index) const { return attrs[size_t(index)]; }
};

// What a shape rule throws; the builder adds the site and records it.
struct Refusal {
  ErrorKind kind;
  std::string operand;
  std::string message;  // "<operand> is <value> and must be <value>", without the operator's name
};

// ---------------------------------------------------------------- kernels

// A kernel's parameters: 4-byte fields only, from a struct of shaders/shared/params.
class Params {
 public:
  template <class T>
  void put(const T& p) {
    words.clear();
    append(p);
  }
  // Behind what is there: an operator of any number of operands has a part for each.
  template <class T>
  void append(const T& p) {
    static_assert(sizeof(T) % 4 == 0 && __is_trivially_copyable(T));
    words.resize(words.size() + sizeof(T) / 4);
    std::memcpy(&words[words.size() - sizeof(T) / 4], &p, sizeof(T));
  }
  std::vector<uint32_t> words;
};

// A layout of a weight's planes (CONTRACT E14): each plane, seen as [rows][panels] blocks, stands
// as [panels][rows].
struct Packing {
  std::string layout = "plain";  // its name, sizes included; plain: as declared
  int64_t rows = 1, panels = 1;
};

// One launch of a GPU kernel: a function of the shader library over groups of threads.
struct Launch {
  std::string function;
  uint32_t groups[3] = {1, 1, 1};
  uint32_t threads = 32;           // of a group, a multiple of 32, at most 1024
  std::vector<int> operands = {};  // of the command, bound from 0 on; empty: all, in their order
  uint32_t first_param = 0;        // words of the command's parameters before those of this launch
  bool waits = true;               // for the launch before it
  uint32_t group_bytes = 0;        // of memory of a group, besides what the function declares
  // If not 0, the greater of groups[0] and groups[1] is no more than so many a multiprocessor, and
  // fewer where fewer fit: any number of them does the work. The other is 1 at most.
  uint32_t per_unit = 0;
};
struct Launches {
  std::vector<Launch> list;
  int64_t scratch = 0;  // bytes that the launches of one command share
};

struct KernelRow {
  Backend backend;
  const char* kernel;  // its name in the backend's table
  // Why this row cannot take the call, or null. The general row comes last.
  const char* (*reject)(const Call&, const Limits&);
  const char* order =
      "exact";  // registered accumulation order (CONTRACT 24.2), "exact" where nothing is summed
  const char* reason = "";            // said in the selections when chosen
  const char* batch_group = nullptr;  // rows of one group give a row the same bits for any M
  // The layout in which the row reads the planes of operand 1, or null: plain. Asked only of a call
  // that the row takes.
  Packing (*packing)(const Call&) = nullptr;
  // What the device must have, or null; asked before `reject`.
  const char* (*needs)(const Call&, const Limits&) = nullptr;
  // Of a GPU's row: how the call is launched.
  void (*launches)(const Call&, const KernelRow&, Launches&) = nullptr;
};

inline const char* always(const Call&, const Limits&) {
  return nullptr;
}

// ---------------------------------------------------------------- data

// What a device opened with check=True tests in an operand before the node reads it (CONTRACT
// 3.1); what breaks it is bad data of the caller's, not a mistake of the graph.
struct DataRule {
  enum Kind : uint8_t {
    below,        // u32: each entry below the bound, or 2^32 - 1, which is padding
    at_most,      // u32: each entry at most the bound
    sum_at_most,  // u32: the sum of the entries at most the bound
    unit,         // f32: each entry in [0, 1)
    pages,        // u32 [sequences, pages]: as below, of the pages that a length reaches
  } kind;
  int slot;
  int64_t (*bound)(const Call&) = nullptr;  // null for unit
  // Slot of f32 factors, or -1: rows whose factor is not finite and above 0 do not read theirs.
  int factors = -1;
  // Of pages: the slot of the lengths, one a sequence, and the positions of a page.
  int lengths = -1;
  int64_t (*block)(const Call&) = nullptr;
};

// Of counts or extents: together no more than the rows of slot 0.
inline DataRule sum_within_rows(int slot) {
  return {DataRule::sum_at_most, slot, [](const Call& c) { return c.in[0].shape[0]; }};
}

struct OpDef {
  Op op;
  const char* name;
  const char* doc;  // first line is a sentence; shapes, dtypes and formula follow
  std::vector<OperandSpec> operands;
  std::vector<AttrSpec> attrs;
  // Types of the results (none for an operator that only writes a state). Throws Refusal.
  std::vector<Type> (*infer)(const Call&);
  // The clauses of the list of refusals that come behind undeclared scalars and stale states, or
  // null.
  void (*rest)(const Call&) = nullptr;
  void (*params)(const Call&, Params&);
  std::vector<KernelRow> kernels;
  int writes = -1;  // slot of the state that the node writes, or -1
  // Slot of the counts or extents, or -1. Where it is given, a last slot "offsets" holds their
  // segment_offsets, clamped to the first axis of slot 0: u32 [entries + 1] (CONTRACT 14).
  int segments = -1;
  bool views = false;  // accepts strided operands
  bool packs = false;  // elementwise: an operand may be one contiguous run repeated (CONTRACT 8.2)
  bool tiles = false;  // a product: its kernels' chunks own rectangles of a result [M, N]
  bool internal = false;    // recorded by the library alone
  bool exact = false;       // tier Exact of CONTRACT 23.1
  const char* source = "";  // where a formula comes from
  // Python's return annotation where it is neither Tensor nor, of a mere state write, State. Each
  // Tensor in it is one result.
  const char* returns = nullptr;
  // What an option adds to the reason of whichever kernel is chosen, or null.
  const char* (*note)(const Call&) = nullptr;
  std::vector<DataRule> checks = {};
};

// Tensors that a call gives back, refused ones included.
int results_of(const OpDef& def);

const OpDef& op_def(Op op);
const std::vector<const OpDef*>& op_defs();
const OpDef* find_op(std::string_view name);

// Slots after bundles are expanded, in order; names are "x", "w.codes".
struct Slot {
  std::string name;
  int operand;    // index into OpDef::operands
  bool optional;  // may be absent
};
// `total` counts them where an operand is tensors; a definition with segments has one more, unnamed
// by any operand.
std::vector<Slot> slots_of(const OpDef& def, size_t total = 0);

struct Choice {
  const KernelRow* row = nullptr;
  std::vector<std::string> rejected;  // "<kernel> <why>"
};
// The first row of the backend that takes the call; throws unsupported_error with every refusal.
Choice select(const Call& call, const Limits& limits, const Site& site);

}  // namespace accel
