// Compute and blit encoders.
#include <cstring>

#include "check.h"
#include "gpu.h"
#include "settings.h"

namespace emu {
namespace {

template <class T>
struct Encoder : Labelled<T> {
  Encoder(CommandBuffer* c, bool concurrent) : buffer(c), encoded(new Encoded) {
    retain(c);
    c->open = true;
    encoded->concurrent = concurrent;
  }
  ~Encoder() override {
    if (encoded) report("encoder", "an encoder is freed before endEncoding");
    release(buffer);
  }
  void end() {
    if (!encoded) return report("encoder", "endEncoding twice");
    encoded->label = this->label;
    buffer->open = false;
    buffer->items.emplace_back();
    buffer->items.back().encoded = std::move(encoded);
  }
  // A command joins the buffer: its resources are in use until it completes.
  void use(Buffer* b, bool write) {
    ++b->in_flight;
    buffer->used.push_back(b);
    if (buffer->retains) buffer->keep_alive(b);
    if (b->tracked()) (write ? encoded->writes : encoded->reads).insert(b);
  }
  Command* add(Command::Kind kind) {
    if (!encoded) {
      report("encoder", "encoding after endEncoding");
      return nullptr;
    }
    encoded->commands.push_back({kind, nullptr, nullptr, {}, nullptr});
    return &encoded->commands.back();
  }
  void fence(Command::Kind kind, Obj* f) {
    if (buffer->retains) buffer->keep_alive(f);
    if (Command* c = add(kind)) c->fence = f;
  }
  CommandBuffer* buffer;
  std::unique_ptr<Encoded> encoded;
};

struct Compute : Encoder<Compute> {
  static constexpr const char* kName = "MTLComputeCommandEncoder";
  using Encoder::Encoder;
  Dispatch state;

  void dispatch(Size3 groups, Size3 threads, Size3 grid) {
    state.groups = groups;
    state.threads = threads;
    state.grid = grid;
    std::string wrong = misuse(state);
    if (!wrong.empty()) return report("validation", "%s", wrong.c_str());
    Command* c = add(Command::kDispatch);
    if (!c) return;
    for (const Argument& a : state.pipeline->kernel->arguments)
      if (a.kind == "buffer")
        if (Buffer* b = state.bound[a.index].buffer) use(b, a.write);
    buffer->keep_alive(state.pipeline);
    c->dispatch = std::make_unique<Dispatch>(state);
  }
  void bind(Buffer* b, UInt offset, UInt i) {
    if (i >= kBuffers) return report("validation", "buffer index %zu", i);
    if (b && offset >= b->length)
      report("validation", "buffer offset %zu past its %zu bytes", offset, b->length);
    state.bound[i] = {b, offset, nullptr};
  }
};

struct Blit : Encoder<Blit> {
  static constexpr const char* kName = "MTLBlitCommandEncoder";
  using Encoder::Encoder;
};

bool can_encode(CommandBuffer* c) {
  if (c->open) report("encoder", "a second encoder is opened before the first ended");
  else if (c->status) report("encoder", "encoding into a committed command buffer");
  return !c->open && !c->status && !must_fail("encoder");
}

void register_openings() {
  using C = CommandBuffer;
  method<C>("computeCommandEncoder", [](C* c, Sel) -> Obj* {
    return can_encode(c) ? autorelease(new Compute(c, false)) : nullptr;
  });
  method<C>("computeCommandEncoderWithDispatchType:", [](C* c, Sel, UInt type) -> Obj* {
    return can_encode(c) ? autorelease(new Compute(c, type == 1)) : nullptr;
  });
  method<C>("blitCommandEncoder", [](C* c, Sel) -> Obj* {
    return can_encode(c) ? autorelease(new Blit(c, false)) : nullptr;
  });
}

template <class T>
void register_common() {
  has_label<T>();
  has_device<T>();
  method<T>("endEncoding", [](T* e, Sel) { e->end(); });
  method<T>("updateFence:", [](T* e, Sel, Obj* f) { e->fence(Command::kUpdateFence, f); });
  method<T>("waitForFence:", [](T* e, Sel, Obj* f) { e->fence(Command::kWaitFence, f); });
  method<T>("pushDebugGroup:", [](T*, Sel, NSString*) {});
  method<T>("popDebugGroup", [](T*, Sel) {});
  method<T>("insertDebugSignpost:", [](T*, Sel, NSString*) {});
}

void register_bindings() {
  using E = Compute;
  method<E>("setComputePipelineState:", [](E* e, Sel, Pipeline* p) { e->state.pipeline = p; });
  method<E>("dispatchType", [](E* e, Sel) { return UInt{e->encoded && e->encoded->concurrent}; });
  method<E>("setBuffer:offset:atIndex:",
            [](E* e, Sel, Buffer* b, UInt offset, UInt i) { e->bind(b, offset, i); });
  method<E>("setBufferOffset:atIndex:", [](E* e, Sel, UInt offset, UInt i) {
    if (i >= kBuffers || !e->state.bound[i].buffer)
      return report("validation", "setBufferOffset: no buffer is bound at index %zu", i);
    e->bind(e->state.bound[i].buffer, offset, i);
  });
  method<E>("setBuffers:offsets:withRange:",
            [](E* e, Sel, Buffer* const* b, const UInt* offsets, Range r) {
              for (UInt i = 0; i < r.length; ++i) e->bind(b[i], offsets[i], r.location + i);
            });
  method<E>("setBytes:length:atIndex:", [](E* e, Sel, const char* p, UInt n, UInt i) {
    if (i >= kBuffers) return report("validation", "buffer index %zu", i);
    if (n > 4096) report("validation", "setBytes of %zu bytes: at most 4096", n);
    e->state.bound[i] = {nullptr, 0, std::make_shared<std::vector<char>>(p, p + n)};
  });
  method<E>("setThreadgroupMemoryLength:atIndex:",
            [](E* e, Sel, UInt n, UInt i) { e->state.threadgroup_bytes[i] = n; });
}

void register_dispatches() {
  using E = Compute;
  method<E>("dispatchThreadgroups:threadsPerThreadgroup:", [](E* e, Sel, Size3 g, Size3 t) {
    e->dispatch(g, t, {g.w * t.w, g.h * t.h, g.d * t.d});
  });
  method<E>("dispatchThreads:threadsPerThreadgroup:", [](E* e, Sel, Size3 n, Size3 t) {
    if (!t.w || !t.h || !t.d) return report("validation", "no threads per threadgroup");
    e->dispatch({(n.w + t.w - 1) / t.w, (n.h + t.h - 1) / t.h, (n.d + t.d - 1) / t.d}, t, n);
  });
  method<E>("memoryBarrierWithScope:", [](E* e, Sel, UInt scope) {
    if (scope & 1) e->add(Command::kBarrier);
  });
  method<E>("memoryBarrierWithResources:count:", [](E* e, Sel, Buffer* const* b, UInt n) {
    if (Command* c = e->add(Command::kResourceBarrier)) c->resources.insert(b, b + n);
  });
  method<E>("useResource:usage:", [](E* e, Sel, Buffer* b, UInt usage) {  // 1 read, 2 write
    if (e->encoded) e->use(b, usage & 2);
  });
  method<E>("useResources:count:usage:", [](E* e, Sel, Buffer* const* b, UInt n, UInt usage) {
    for (UInt i = 0; i < n && e->encoded; ++i) e->use(b[i], usage & 2);
  });
}

void copy(Blit* e, Buffer* from, UInt at, Buffer* to, UInt place, UInt n) {
  if (at + n > from->length || place + n > to->length)
    return report("validation", "a blit copy past the end of a buffer");
  Command* c = e->add(Command::kCall);
  if (!c) return;
  e->use(from, false);
  e->use(to, true);
  c->call = [=](const Node& node) {
    check_copy(node, from, at, n, false);
    check_copy(node, to, place, n, true);
    memmove(to->data + place, from->data + at, n);
  };
}
void fill(Blit* e, Buffer* b, Range r, uint8_t v) {
  if (r.location + r.length > b->length)
    return report("validation", "a blit fill past the end of a buffer");
  if (!r.length || r.location % 4 || r.length % 4)
    report("validation", "a blit fill of %zu bytes at %zu: not whole words", r.length, r.location);
  Command* c = e->add(Command::kCall);
  if (!c) return;
  e->use(b, true);
  c->call = [=](const Node& node) {
    check_copy(node, b, r.location, r.length, true);
    memset(b->data + r.location, v, r.length);
  };
}
void register_blits() {
  method<Blit>("copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:",
               [](Blit* e, Sel, Buffer* from, UInt at, Buffer* to, UInt place, UInt n) {
                 copy(e, from, at, to, place, n);
               });
  method<Blit>("fillBuffer:range:value:",
               [](Blit* e, Sel, Buffer* b, Range r, uint8_t v) { fill(e, b, r, v); });
}

const bool registered = [] {
  register_openings();
  register_common<Compute>();
  register_common<Blit>();
  register_bindings();
  register_dispatches();
  register_blits();
  return true;
}();

}  // namespace
}  // namespace emu
