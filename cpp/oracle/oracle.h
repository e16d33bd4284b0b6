// The right answer of a recorded graph: every node by an obvious loop in float64, written from the
// contract's formulas. Knows nothing of plans or kernels. Levels fma and base walk each node's
// registered accumulation order in f32 instead, so that a CPU result can be compared bit for bit
// (specs 007).
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace accel::oracle {

enum class Level : uint8_t { f64, fma, base };

// A port's bytes as the caller holds them: at least as many elements as the port's shape has.
struct Bytes {
  DType dtype = DType::F32;
  const void* data = nullptr;
  int64_t count = 0;
};

struct Inputs {
  std::map<std::string, Bytes> ports;       // inputs, weights, and states before the run
  std::map<std::string, uint32_t> scalars;  // as bits
};

struct Options {
  Level level = Level::f64;
  bool budgets = false;            // of each output, against the f64 value
  Backend backend = Backend::cpu;  // whose rows name the orders
  bool simd_groups = true;         // of a GPU, as Limits has it
  bool matrix = false;             // the same, with the memory that it needs
};

// A value element by element; every storage type fits a double exactly.
// A bounded operator's f64 result is not rounded; an exact one's is rounded as its formula says.
struct Value {
  Type type;
  std::vector<double> v;
  // Absolute error that the node which made it may have, given exact operands (CONTRACT 23.3);
  // empty unless asked for.
  std::vector<double> budget;
};

// Output ports, and states that the graph writes (their contents afterwards). Throws bind_error for
// a port or scalar that is missing, of another type, or too short.
std::map<std::string, Value> evaluate(const Graph& graph, const Inputs& inputs,
                                      const Options& options = {});

}  // namespace accel::oracle
