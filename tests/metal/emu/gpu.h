// The GPU: one thread that takes commands whose predecessors are over, in the order that the seed
// chooses, and completes command buffers in the order of their queue.
#pragma once
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "order.h"

namespace emu {

// A block: what clang emits for ^{}.
struct Block {
  void* isa;
  int flags, reserved;
  void (*invoke)(void*, ...);
};
extern "C" void* _Block_copy(const void*);
extern "C" void _Block_release(const void*);

struct Queue : Labelled<Queue> {
  static constexpr const char* kName = "MTLCommandQueue";
  explicit Queue(UInt most = 64) : limit(most) {}
  ~Queue() override;
  UInt limit;
  UInt uncompleted = 0;                // command buffers made and not complete
  std::deque<CommandBuffer*> running;  // committed, in order
  std::vector<Obj*> residency;
};

enum Status { kNotEnqueued, kEnqueued, kCommitted, kScheduled, kCompleted, kError };

struct Event : Labelled<Event> {
  static constexpr const char* kName = "MTLEvent";
  explicit Event(bool shares) : shared(shares) {
    if (shares) become_shared();
  }
  ~Event() override {
    for (auto& l : listeners) _Block_release(l.block);
  }
  void become_shared();
  bool shared;
  uint64_t value = 0;
  struct Signal {
    uint64_t value;
    Before before;
  };
  std::vector<Signal> signals;
  struct Listener {
    uint64_t value;
    void* block;
  };
  std::vector<Listener> listeners;
};
// The same, under the class of shared events.
struct SharedEvent : Object<SharedEvent> {
  static constexpr const char* kName = "MTLSharedEvent";
};

struct CommandBuffer : Labelled<CommandBuffer> {
  static constexpr const char* kName = "MTLCommandBuffer";
  CommandBuffer(Queue* q, bool retains_resources);
  ~CommandBuffer() override;
  void keep_alive(Obj* o) { keep.push_back(retain(o)); }

  Queue* queue;
  bool retains, reports_encoders = false, open = false;
  // Set once its handlers ran and the GPU let go of it.
  std::shared_ptr<bool> finished = std::make_shared<bool>(false);
  int status = kNotEnqueued;
  struct Item {  // an encoder, or an event
    std::unique_ptr<Encoded> encoded;
    Event* event = nullptr;
    uint64_t value = 0;
    bool signals = false;
  };
  std::vector<Item> items;
  std::vector<Obj*> keep;
  std::vector<Buffer*> used;
  std::vector<std::function<void(CommandBuffer*)>> scheduled, completed;
  long error_code = 0;
  std::string error_text;
  std::vector<std::string> encoder_labels;
  double started = 0, ended = 0;
  unsigned first = 0, past = 0;  // ids of its nodes
  size_t left = 0;               // nodes that have not run
  Before known;                  // what the host knew to be over when it committed
};

class Gpu {
 public:
  static Gpu& get();
  void commit(CommandBuffer* c);
  void wait(CommandBuffer* c);
  void wait_scheduled(CommandBuffer* c);
  void reserve(Queue* q);          // a place for one more command buffer
  void give_up(CommandBuffer* c);  // one that was never committed is gone
  int status(CommandBuffer* c);
  void signal(Event* e, uint64_t value);  // by the host
  uint64_t value(Event* e);
  bool wait(Event* e, uint64_t value, uint64_t milliseconds);
  void forget();  // the order so far: all of it is over
  std::mutex m;

 private:
  using Lock = std::unique_lock<std::mutex>;
  void run();
  void hold(Lock& lock);
  NodeP pick();
  void enqueue(const NodeP& n);
  void execute(const NodeP& n, Lock& lock);
  void raise(Event* e, uint64_t value, Lock& lock);
  void finish(const NodeP& n, Lock& lock);
  void complete(Queue* q, Lock& lock);
  void idle(Lock& lock);
  void observe(CommandBuffer* c);
  void fail(CommandBuffer* c, long code, const std::string& text);

  std::condition_variable work_, done_;
  std::map<unsigned, NodeP> ready_;
  std::vector<NodeP> waiting_;  // for an event
  size_t pending_ = 0;          // nodes that have not run
  bool started_ = false, flush_ = false, held_ = false;
  unsigned next_id_ = 1;
  Before host_;  // commands that the host knows to be over
  double last_commit_ = 0, stuck_since_ = 0;
  unsigned long draws_ = 0;
};

double now();

}  // namespace emu
