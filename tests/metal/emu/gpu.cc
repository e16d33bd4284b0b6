#include "gpu.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

#include "check.h"
#include "settings.h"

namespace emu {
namespace {

bool reorders() {
  return settings().check || settings().seed > 1;
}

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Gpu& Gpu::get() {
  static auto* g = new Gpu;
  return *g;
}

void forget_order() {
  Gpu::get().forget();
}
void Gpu::forget() {
  Lock lock(m);
  host_.add_under(next_id_);
}

void Gpu::enqueue(const NodeP& n) {
  if (n->kind == Node::kWait) waiting_.push_back(n);
  else ready_[n->id] = n;
}

void Gpu::commit(CommandBuffer* c) {
  Lock lock(m);
  if (!started_) {
    started_ = true;
    std::thread([this] { run(); }).detach();
  }
  retain(c);
  c->status = kCommitted;
  c->known = host_;
  c->first = next_id_;
  std::vector<NodeP> all, ends;
  NodeP gate;
  size_t index = 0;
  auto add = [&](Node::Kind kind) {
    auto n = std::make_shared<Node>();
    n->kind = kind;
    n->id = next_id_++;
    n->owner = c;
    all.push_back(n);
    return n;
  };
  for (auto& item : c->items) {
    if (item.encoded) {
      c->encoder_labels.push_back(item.encoded->label);
      auto nodes = nodes_of(*item.encoded, c, index++, gate, next_id_);
      ends.push_back(nodes.back());
      all.insert(all.end(), nodes.begin(), nodes.end());
      continue;
    }
    NodeP n = add(item.signals ? Node::kSignal : Node::kWait);
    n->event = item.event;
    n->value = item.value;
    link(gate, n);
    if (item.signals)
      for (auto& e : ends) link(e, n);
    else gate = n;
  }
  NodeP last = add(Node::kJoin);
  link(gate, last);
  for (auto& e : ends) link(e, last);
  c->items.clear();
  c->past = next_id_;
  c->left = all.size();
  pending_ += all.size();
  if (!held_ && reorders() && !flush_) held_ = true;
  last_commit_ = now();
  c->queue->running.push_back(c);
  for (auto& n : all)
    if (!n->missing) enqueue(n);
  work_.notify_all();
}

// Commands of c, and of what its queue ran before, are over for everything committed from now on.
void Gpu::observe(CommandBuffer* c) {
  if (!settings().check) return;
  host_.add_all(c->known);
  for (unsigned i = c->first; i < c->past; ++i) host_.add(i);
  host_.compact();
}

void Gpu::wait(CommandBuffer* c) {
  Lock lock(m);
  flush_ = true;
  work_.notify_all();
  done_.wait(lock, [finished = c->finished] { return *finished; });
  observe(c);
}
void Gpu::wait_scheduled(CommandBuffer* c) {
  Lock lock(m);
  flush_ = true;
  work_.notify_all();
  done_.wait(lock, [&] { return c->status >= kScheduled; });
}
int Gpu::status(CommandBuffer* c) {
  Lock lock(m);
  if (c->status >= kCompleted) observe(c);
  return c->status;
}

void Gpu::reserve(Queue* q) {
  Lock lock(m);
  if (q->uncompleted >= q->limit) {
    flush_ = true;
    work_.notify_all();
    if (!done_.wait_for(lock, std::chrono::milliseconds(settings().patience_ms),
                        [&] { return q->uncompleted < q->limit; }))
      report("deadlock", "the queue has %zu command buffers that do not complete", q->uncompleted);
  }
  ++q->uncompleted;
}
void Gpu::give_up(CommandBuffer* c) {
  Lock lock(m);
  --c->queue->uncompleted;
}

void Gpu::signal(Event* e, uint64_t value) {
  Lock lock(m);
  raise(e, std::max(e->value, value), lock);
  stuck_since_ = 0;
  work_.notify_all();
}
// Waiters may run, and listeners are told.
void Gpu::raise(Event* e, uint64_t value, Lock& lock) {
  e->value = value;
  std::vector<Event::Listener> told;
  for (size_t i = 0; i < e->listeners.size();) {
    if (e->listeners[i].value > value) {
      ++i;
      continue;
    }
    told.push_back(e->listeners[i]);
    e->listeners.erase(e->listeners.begin() + i);
  }
  done_.notify_all();
  if (told.empty()) return;
  retain(e);
  lock.unlock();
  {
    PoolScope pool;
    for (auto& l : told) {
      static_cast<Block*>(l.block)->invoke(l.block, e, value);
      _Block_release(l.block);
    }
  }
  release(e);
  lock.lock();
}
uint64_t Gpu::value(Event* e) {
  Lock lock(m);
  for (auto& s : e->signals) host_.add_all(s.before);
  return e->value;
}
bool Gpu::wait(Event* e, uint64_t value, uint64_t milliseconds) {
  Lock lock(m);
  flush_ = true;
  work_.notify_all();
  bool there =
      done_.wait_for(lock, std::chrono::milliseconds(std::min<uint64_t>(milliseconds, 1u << 30)),
                     [&] { return e->value >= value; });
  for (auto& s : e->signals) host_.add_all(s.before);
  return there;
}

void Gpu::hold(Lock& lock) {
  while (held_ && !flush_) {
    double left = last_commit_ + settings().grace_ms / 1000.0 - now();
    if (left <= 0) break;
    work_.wait_for(lock, std::chrono::duration<double>(left));
  }
  held_ = false;
}

NodeP Gpu::pick() {
  for (size_t i = 0; i < waiting_.size(); ++i)
    if (waiting_[i]->event->value >= waiting_[i]->value || waiting_[i]->owner->error_code) {
      NodeP n = waiting_[i];
      waiting_.erase(waiting_.begin() + i);
      return n;
    }
  if (ready_.empty()) return nullptr;
  auto it = ready_.begin();
  unsigned seed = settings().seed;
  if (seed == 2) it = std::prev(ready_.end());
  if (seed > 2) {
    std::mt19937 random(seed * 7919 + ++draws_);
    std::advance(it, random() % ready_.size());
  }
  NodeP n = it->second;
  ready_.erase(it);
  return n;
}

void Gpu::fail(CommandBuffer* c, long code, const std::string& text) {
  if (c->error_code) return;
  c->error_code = code;
  c->error_text = text;
}

// Nothing can run: only an event from the host helps. After a while the device gives up.
void Gpu::idle(Lock& lock) {
  flush_ = false;
  if (waiting_.empty()) {
    work_.wait(lock);
    return;
  }
  if (!stuck_since_) stuck_since_ = now();
  double left = stuck_since_ + settings().patience_ms / 1000.0 - now();
  if (left > 0) {
    work_.wait_for(lock, std::chrono::duration<double>(left));
    return;
  }
  for (auto& n : waiting_) {
    report("deadlock", "command buffer '%s' waits for value %llu of event '%s', which has %llu",
           n->owner->label.c_str(), static_cast<unsigned long long>(n->value),
           n->event->label.c_str(), static_cast<unsigned long long>(n->event->value));
    fail(n->owner, 2, "Caused GPU Timeout Error (an event never signalled)");
  }
}

void Gpu::run() {
  Lock lock(m);
  for (;;) {
    if (ready_.empty() && waiting_.empty()) {
      flush_ = false;
      work_.wait(lock);
      continue;
    }
    hold(lock);
    NodeP n = pick();
    if (!n) {
      idle(lock);
      continue;
    }
    stuck_since_ = 0;
    execute(n, lock);
    finish(n, lock);
  }
}

void Gpu::execute(const NodeP& n, Lock& lock) {
  CommandBuffer* c = n->owner;
  if (c->status == kCommitted) {
    c->status = kScheduled;
    c->started = now();
    long code = 1;
    if (must_fail("command_buffer", &code)) fail(c, code, "failure asked for by a test");
    auto handlers = std::move(c->scheduled);
    done_.notify_all();
    if (!handlers.empty()) {
      lock.unlock();
      PoolScope pool;
      for (auto& f : handlers) f(c);
      lock.lock();
    }
  }
  n->before = settings().check ? c->known : Before();
  settle(*n);
  if (c->error_code) return;  // what follows an error does not run, and signals nothing
  if (n->kind == Node::kSignal) {
    if (settings().check) {
      if (n->event->signals.size() > 256) n->event->signals.erase(n->event->signals.begin());
      n->event->signals.push_back({n->value, n->before});
    }
    raise(n->event, std::max(n->event->value, n->value), lock);
  } else if (n->kind == Node::kWait) {
    for (auto& s : n->event->signals)
      if (s.value >= n->value) n->before.add_all(s.before);
  } else if (n->dispatch || n->call) {
    lock.unlock();
    if (n->dispatch) run_dispatch(*n->dispatch, *n);
    else n->call(*n);
    lock.lock();
  }
}

void Gpu::finish(const NodeP& n, Lock& lock) {
  n->executed = true;
  --pending_;
  for (auto& next : n->next)
    if (--next->missing == 0) enqueue(next);
  n->next.clear();
  n->dispatch.reset();
  n->call = nullptr;
  if (--n->owner->left == 0) {
    n->owner->ended = now();
    complete(n->owner->queue, lock);
  }
}

// Command buffers end in the order of their queue. Who waits goes on when the GPU has let go of
// everything, so that what lives then is the host's.
void Gpu::complete(Queue* q, Lock& lock) {
  retain(q);
  std::vector<std::shared_ptr<bool>> finished;
  while (!q->running.empty() && q->running.front()->left == 0) {
    CommandBuffer* c = q->running.front();
    q->running.pop_front();
    for (Buffer* b : c->used) --b->in_flight;
    c->used.clear();
    c->status = c->error_code ? kError : kCompleted;
    finished.push_back(c->finished);
    --q->uncompleted;
    auto handlers = std::move(c->completed);
    auto keep = std::move(c->keep);
    if (!handlers.empty()) observe(c);
    done_.notify_all();
    lock.unlock();
    {
      PoolScope pool;
      for (auto& f : handlers) f(c);
      handlers.clear();
    }
    for (Obj* o : keep) release(o);
    release(c);
    lock.lock();
  }
  lock.unlock();
  release(q);
  lock.lock();
  for (auto& f : finished) *f = true;
  done_.notify_all();
}

}  // namespace emu
