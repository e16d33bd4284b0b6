// Command queues and command buffers.
#include "gpu.h"
#include "settings.h"

namespace emu {

Queue::~Queue() {
  for (Obj* o : residency) release(o);
}

CommandBuffer::CommandBuffer(Queue* q, bool retains_resources)
    : queue(q), retains(retains_resources) {
  retain(q);
  Gpu::get().reserve(q);
}
CommandBuffer::~CommandBuffer() {
  if (open)
    report("encoder", "command buffer '%s' is freed with an encoder still open", label.c_str());
  if (status == kNotEnqueued) {
    Gpu::get().give_up(this);
    for (Buffer* b : used) --b->in_flight;
  }
  for (Obj* o : keep) release(o);
  release(queue);
}

NSString* encoder_info_key() {
  static auto* key = new NSString("MTLCommandBufferEncoderInfoErrorKey");
  return key;
}

namespace {

struct BufferDescriptor : Object<BufferDescriptor> {
  static constexpr const char* kName = "MTLCommandBufferDescriptor";
  bool retains = true;
  UInt errors = 0;
};
struct EncoderInfo : Labelled<EncoderInfo> {
  static constexpr const char* kName = "MTLCommandBufferEncoderInfo";
  long state = 0;
};

template <class F>
std::function<void(CommandBuffer*)> handler(F* block) {
  void* b = _Block_copy(block);
  return [b](CommandBuffer* c) {
    static_cast<Block*>(b)->invoke(b, c);
    _Block_release(b);
  };
}

Obj* error_of(CommandBuffer* c) {
  if (Gpu::get().status(c) != kError) return nullptr;
  auto* e = new NSError;
  e->text = c->error_text;
  e->domain = "MTLCommandBufferErrorDomain";
  e->code = c->error_code;
  if (c->reports_encoders) {
    auto* infos = new NSArray;
    for (auto& label : c->encoder_labels) {
      auto* info = new EncoderInfo;
      info->label = label;
      info->state = infos->items.empty() ? 4 : 2;  // faulted, then affected
      infos->add(info);
      release(info);
    }
    auto* d = new NSDictionary;
    d->put(encoder_info_key(), infos);
    release(infos);
    e->user_info = d;
  }
  return autorelease(e);
}

Obj* new_commands(Queue* q, bool retains) {
  return must_fail("no_command_buffer") ? nullptr : autorelease(new CommandBuffer(q, retains));
}

void register_queues() {
  method<Device>("newCommandQueue",
                 [](Device*, Sel) -> Obj* { return must_fail("queue") ? nullptr : new Queue; });
  method<Device>("newCommandQueueWithMaxCommandBufferCount:", [](Device*, Sel, UInt n) -> Obj* {
    return must_fail("queue") ? nullptr : new Queue(n);
  });
  has_label<Queue>();
  has_device<Queue>();
  method<Queue>("commandBuffer", [](Queue* q, Sel) { return new_commands(q, true); });
  method<Queue>("commandBufferWithUnretainedReferences",
                [](Queue* q, Sel) { return new_commands(q, false); });
  method<Queue>("commandBufferWithDescriptor:", [](Queue* q, Sel, BufferDescriptor* d) {
    Obj* c = new_commands(q, d->retains);
    if (c) static_cast<CommandBuffer*>(c)->reports_encoders = d->errors & 1;
    return c;
  });
  using D = BufferDescriptor;
  allocatable<D>();
  method<D>("setRetainedReferences:", [](D* d, Sel, bool v) { d->retains = v; });
  method<D>("retainedReferences", [](D* d, Sel) { return d->retains; });
  method<D>("setErrorOptions:", [](D* d, Sel, UInt v) { d->errors = v; });
  method<D>("errorOptions", [](D* d, Sel) { return d->errors; });
  has_label<EncoderInfo>();
  method<EncoderInfo>("errorState", [](EncoderInfo* i, Sel) { return i->state; });
  method<EncoderInfo>("debugSignposts", [](EncoderInfo*, Sel) { return autorelease(new NSArray); });
}

void register_buffers() {
  using C = CommandBuffer;
  has_label<C>();
  has_device<C>();
  method<C>("commandQueue", [](C* c, Sel) -> Obj* { return c->queue; });
  method<C>("retainedReferences", [](C* c, Sel) { return c->retains; });
  method<C>("errorOptions", [](C* c, Sel) { return UInt{c->reports_encoders}; });
  method<C>("enqueue", [](C*, Sel) {});
  method<C>("pushDebugGroup:", [](C*, Sel, NSString*) {});
  method<C>("popDebugGroup", [](C*, Sel) {});
  method<C>("addCompletedHandler:", [](C* c, Sel, void* block) {
    if (c->status) return report("validation", "addCompletedHandler after commit");
    c->completed.push_back(handler(block));
  });
  method<C>("addScheduledHandler:", [](C* c, Sel, void* block) {
    if (c->status) return report("validation", "addScheduledHandler after commit");
    c->scheduled.push_back(handler(block));
  });
  method<C>("commit", [](C* c, Sel) {
    if (c->open) return report("encoder", "commit with an encoder still open");
    if (c->status) return report("validation", "a command buffer is committed twice");
    ++counters().commits;
    Gpu::get().commit(c);
  });
  method<C>("waitUntilCompleted", [](C* c, Sel) {
    if (!c->status)
      return report("validation", "waitUntilCompleted before commit: this would hang");
    Gpu::get().wait(c);
  });
  method<C>("waitUntilScheduled", [](C* c, Sel) {
    if (!c->status)
      return report("validation", "waitUntilScheduled before commit: this would hang");
    Gpu::get().wait_scheduled(c);
  });
  method<C>("status", [](C* c, Sel) { return static_cast<UInt>(Gpu::get().status(c)); });
  method<C>("error", [](C* c, Sel) { return error_of(c); });
  method<C>("logs", [](C*, Sel) -> Obj* { return nullptr; });
  method<C>("GPUStartTime", [](C* c, Sel) { return c->started; });
  method<C>("GPUEndTime", [](C* c, Sel) { return c->ended; });
  method<C>("kernelStartTime", [](C* c, Sel) { return c->started; });
  method<C>("kernelEndTime", [](C* c, Sel) { return c->ended; });
}

const bool registered = [] {
  register_queues();
  register_buffers();
  return true;
}();

}  // namespace
}  // namespace emu

// A constant of Metal that metal-cpp looks up by name.
extern "C" void* MTLCommandBufferEncoderInfoErrorKey;
void* MTLCommandBufferEncoderInfoErrorKey = emu::encoder_info_key();
