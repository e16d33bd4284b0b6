// What a builder has recorded so far. Private to the graph layer.
#pragma once
#include <string>
#include <vector>

#include "graph/builder.h"

namespace accel {

// A recorded write to a range of a state port.
struct StateWrite {
  int port;
  int64_t begin, end;
  int version;
};

// The segment_offsets node of one tensor of counts or extents.
struct Segments {
  View counts;
  int64_t total;
  int node;
};

struct BuilderState {
  std::string label;
  std::shared_ptr<void> runtime;
  Graph graph;
  std::vector<StateWrite> writes;
  std::vector<Segments> segments;
  std::vector<Diagnostic> diagnostics;
  std::vector<bool> scalar_used;

  int find_scalar(const std::string& name) const;
  int find_port(const std::string& name) const;
};

// Adds "<op>: " in front of the message.
void add_refusal(const BuilderPtr& b, const std::string& op, const Refusal& refusal,
                 const Site& site);

// Empty, or why a state range read at `version` is stale: its name, version and how many writes
// ago.
std::string stale_text(const BuilderState& b, const Source& source);

}  // namespace accel
