#include "order.h"

#include "settings.h"

namespace emu {

void Before::add(unsigned id) {
  if (id < base_) return;
  size_t word = (id - base_) / 64;
  if (word >= bits_.size()) bits_.resize(word + 1);
  bits_[word] |= uint64_t{1} << ((id - base_) % 64);
}
void Before::add_under(unsigned id) {
  unsigned base = id / 64 * 64;
  if (base > base_) {
    size_t words = (base - base_) / 64;
    bits_.erase(bits_.begin(), bits_.begin() + std::min(words, bits_.size()));
    base_ = base;
  }
  for (unsigned i = base; i < id; ++i) add(i);
}
void Before::add_all(const Before& other) {
  if (other.base_ > base_) add_under(other.base_);
  size_t skip = (base_ - std::min(base_, other.base_)) / 64;
  if (other.bits_.size() <= skip) return;
  bits_.resize(std::max(bits_.size(), other.bits_.size() - skip));
  for (size_t i = skip; i < other.bits_.size(); ++i) bits_[i - skip] |= other.bits_[i];
}
void Before::compact() {
  size_t full = 0;
  while (full < bits_.size() && bits_[full] == ~uint64_t{0}) ++full;
  bits_.erase(bits_.begin(), bits_.begin() + full);
  base_ += full * 64;
}

void link(const NodeP& first, const NodeP& then) {
  if (!first) return;
  then->previous.push_back(first);
  if (first->executed) return;
  first->next.push_back(then);
  ++then->missing;
}

bool Node::follows(unsigned other, const Buffer* b) const {
  if (before.has(other)) return true;
  for (auto& r : partial)
    if (r->resources.count(b) && (r->before.has(other) || r->id == other)) return true;
  return false;
}

void settle(Node& n) {
  if (settings().check)
    for (auto& p : n.previous) {
      // A barrier of some resources orders those alone: only another of its kind takes from it.
      if (p->kind == Node::kResources && n.kind != Node::kResources) continue;
      n.before.add_all(p->before);
      n.before.add(p->id);
    }
  n.previous.clear();
}

namespace {

// Builds the nodes of one encoder.
class Builder {
 public:
  Builder(Encoded& e, CommandBuffer* owner, size_t index, const NodeP& gate, unsigned& next_id)
      : encoded_(e), owner_(owner), index_(index), next_id_(next_id), full_(gate), last_(gate) {}

  std::vector<NodeP> build() {
    wait_for_tracked();
    for (Command& c : encoded_.commands) add(c);
    NodeP end = join(Node::kJoin);
    follow_all(end);
    for (Buffer* b : encoded_.writes) {
      b->writer = end;
      b->readers.clear();
    }
    for (Buffer* b : encoded_.reads)
      if (!encoded_.writes.count(b)) b->readers.push_back(end);
    return std::move(all_);
  }

 private:
  NodeP join(Node::Kind kind) {
    auto n = std::make_shared<Node>();
    n->kind = kind;
    n->id = next_id_++;
    n->owner = owner_;
    n->encoder = index_;
    all_.push_back(n);
    return n;
  }
  // What Metal orders by itself: whole encoders that use a tracked resource, for that resource.
  void wait_for_tracked() {
    std::set<NodeP> before;
    std::set<const Buffer*> shared;
    auto after = [&](const NodeP& n, const Buffer* b) {
      if (!n) return;
      before.insert(n);
      shared.insert(b);
    };
    for (Buffer* b : encoded_.reads) after(b->writer, b);
    for (Buffer* b : encoded_.writes) {
      after(b->writer, b);
      for (auto& r : b->readers) after(r, b);
    }
    if (before.empty()) return;
    NodeP r = join(Node::kResources);
    r->resources = shared;
    for (auto& n : before) link(n, r);
    link(last_, r);
    partial_.push_back(r);
    last_ = r;
  }
  // After everything in this encoder so far.
  void follow_all(const NodeP& n) {
    for (auto& s : since_full_) link(s, n);
    link(full_, n);
    if (last_ != full_) link(last_, n);
    n->partial = partial_;
  }
  void add(Command& c) {
    switch (c.kind) {
      case Command::kDispatch:
      case Command::kCall:
        return command(c);
      case Command::kBarrier:
        return barrier();
      case Command::kResourceBarrier: {
        NodeP r = join(Node::kResources);
        r->resources = c.resources;
        follow_all(r);
        partial_.push_back(r);
        last_ = r;
        return;
      }
      case Command::kUpdateFence: {
        NodeP u = join(Node::kJoin);
        follow_all(u);
        static_cast<Fence*>(c.fence)->updated = u;
        return;
      }
      case Command::kWaitFence: {
        auto* f = static_cast<Fence*>(c.fence);
        if (!f->updated)
          report("fence", "waitForFence: nothing that was committed before updates fence '%s'",
                 f->label.c_str());
        NodeP w = join(Node::kJoin);
        link(f->updated, w);
        link(full_, w);
        if (last_ != full_) link(last_, w);
        full_ = last_ = w;
        return;
      }
    }
  }
  void command(Command& c) {
    NodeP n = join(c.kind == Command::kDispatch ? Node::kDispatch : Node::kCall);
    n->dispatch = std::move(c.dispatch);
    n->call = std::move(c.call);
    n->partial = partial_;
    link(full_, n);
    if (last_ != full_) link(last_, n);
    if (encoded_.concurrent) {
      since_full_.push_back(n);
    } else {
      full_ = last_ = n;
    }
  }
  void barrier() {
    NodeP b = join(Node::kJoin);
    follow_all(b);
    since_full_.clear();
    full_ = last_ = b;
  }

  Encoded& encoded_;
  CommandBuffer* owner_;
  size_t index_;
  unsigned& next_id_;
  NodeP full_;  // the last thing that all later commands follow
  NodeP last_;  // that, or a later barrier of some resources
  std::vector<NodeP> since_full_, partial_, all_;
};

}  // namespace

std::vector<NodeP> nodes_of(Encoded& e, CommandBuffer* owner, size_t index, const NodeP& gate,
                            unsigned& next_id) {
  return Builder(e, owner, index, gate, next_id).build();
}

}  // namespace emu
