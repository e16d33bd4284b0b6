// What the user said, as data: ports, scalars, nodes and outputs of one recorded graph.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shape.h"
#include "ops/opdef.h"

namespace accel {

enum class PortKind : uint8_t { Input, Weight, State, Output };
const char* name_of(PortKind k);
enum class ScalarKind : uint8_t { U32, F32 };
const char* name_of(ScalarKind k);

struct ScalarDesc {
  std::string name;
  ScalarKind kind = ScalarKind::U32;
  Site site;
};

struct PortDesc {
  std::string name;
  PortKind kind = PortKind::Input;
  DType dtype = DType::F32;
  Shape shape;
  std::string layout = "plain";
  Site site;
};

// Where a value lives: the result of a node, or a range [begin, begin + count) of a port, in
// elements.
struct Source {
  int node = -1;
  int result = 0;
  int port = -1;
  int64_t begin = 0;
  int64_t count = 0;
  int version = 0;  // of a state range, when it was read
};

// A tensor or a state as an operand: a strided window on a source. offset is relative to the
// source's start.
struct View {
  DType dtype = DType::F32;
  Shape shape;
  Strides strides;
  int64_t offset = 0;
  Source source;
  bool state = false;
  Type type() const { return {dtype, shape}; }
  bool contiguous() const { return is_contiguous(shape, strides, offset); }
};

struct Node {
  int id = 0;  // 1, 2, ... in record order
  const OpDef* def = nullptr;
  std::vector<std::optional<View>> in;  // by slot; def->writes names the one that is written
  Call call;                            // types and attributes, results filled
  Site site;
  int written_version = 0;  // version that this node gives to the range it writes
};

struct Output {
  int port = -1;
  View value;
  Site site;
};

// Immutable once compiled. nodes[i].id == i + 1.
struct Graph {
  std::string label;
  std::vector<PortDesc> ports;
  std::vector<ScalarDesc> scalars;
  std::vector<Node> nodes;
  std::vector<Output> outputs;
  const Node& node(int id) const { return nodes[size_t(id - 1)]; }
};

}  // namespace accel
