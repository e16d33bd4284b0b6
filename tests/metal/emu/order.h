// The order of the GPU as a graph. Commands that nothing orders may run in any order and are named
// when they touch the same bytes: between encoders only fences, events, hazards of tracked
// resources and what the host waited for give an order, within a concurrent encoder only barriers.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dispatch.h"

namespace emu {

// Commands that precede one: every id under base, and those whose bit is set.
class Before {
 public:
  bool has(unsigned id) const {
    if (id < base_) return true;
    size_t at = id - base_;
    return at / 64 < bits_.size() && (bits_[at / 64] >> (at % 64) & 1);
  }
  void add(unsigned id);
  void add_all(const Before& other);
  void add_under(unsigned id);
  void compact();  // what is contiguous from the base goes under it

 private:
  unsigned base_ = 0;  // a multiple of 64
  std::vector<uint64_t> bits_;
};

struct Event;
struct CommandBuffer;

struct Node {
  enum Kind { kDispatch, kCall, kJoin, kResources, kSignal, kWait };
  Kind kind = kJoin;
  unsigned id = 0;
  CommandBuffer* owner = nullptr;
  size_t encoder = 0;
  std::unique_ptr<Dispatch> dispatch;
  std::function<void(const Node&)> call;
  Event* event = nullptr;
  uint64_t value = 0;
  std::set<const Buffer*> resources;  // that a kResources orders

  bool executed = false;
  unsigned missing = 0;  // predecessors that have not run
  std::vector<NodeP> next, previous;
  std::vector<NodeP> partial;  // kResources before this one
  Before before;

  // Whether the command `other` is over before this one touches the buffer.
  bool follows(unsigned other, const Buffer* b) const;
};
void link(const NodeP& first, const NodeP& then);
// Once everything before it has run: collects what precedes it.
void settle(Node& n);

// One thing in an encoder, in order.
struct Command {
  enum Kind { kDispatch, kCall, kBarrier, kResourceBarrier, kUpdateFence, kWaitFence } kind;
  std::unique_ptr<Dispatch> dispatch;
  std::function<void(const Node&)> call;
  std::set<const Buffer*> resources;
  Obj* fence = nullptr;
};
struct Encoded {
  std::string label;
  bool concurrent = false;
  std::vector<Command> commands;
  std::set<Buffer*> reads, writes;  // tracked resources
};

struct Fence : Labelled<Fence> {
  static constexpr const char* kName = "MTLFence";
  NodeP updated;
};

// Adds the nodes of one encoder: `gate` precedes all of it; the last of the result follows all.
std::vector<NodeP> nodes_of(Encoded& e, CommandBuffer* owner, size_t index, const NodeP& gate,
                            unsigned& next_id);

}  // namespace emu
