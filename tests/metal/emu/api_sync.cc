// Fences, events and residency sets.
#include <algorithm>
#include <set>

#include "gpu.h"
#include "settings.h"

namespace emu {

void Event::become_shared() {
  --cls->live;
  cls = &SharedEvent::klass();
  ++cls->live;
}

namespace {

struct ResidencyDescriptor : Labelled<ResidencyDescriptor> {
  static constexpr const char* kName = "MTLResidencySetDescriptor";
};
struct ResidencySet : Labelled<ResidencySet> {
  static constexpr const char* kName = "MTLResidencySet";
  ~ResidencySet() override {
    for (Obj* o : members) release(o);
    for (Obj* o : committed) release(o);
  }
  std::set<Obj*> members, committed;
  bool requested = false;

  void add(Obj* o) {
    if (members.insert(o).second) retain(o);
  }
  void remove(Obj* o) {
    if (members.erase(o)) release(o);
  }
  void commit() {
    for (Obj* o : members) retain(o);
    for (Obj* o : committed) release(o);
    committed = members;
  }
};
struct Listener : Object<Listener> {
  static constexpr const char* kName = "MTLSharedEventListener";
};

void encode_event(CommandBuffer* c, Event* e, uint64_t value, bool signals) {
  if (c->open) return report("encoder", "an event is encoded with an encoder still open");
  if (c->status) return report("encoder", "encoding into a committed command buffer");
  c->keep_alive(e);
  c->items.push_back({nullptr, e, value, signals});
}

template <class K>  // the class that answers; the object is an Event
void register_event() {
  method<K>("setLabel:", [](Event* e, Sel, NSString* s) { e->label = s ? s->text : ""; });
  method<K>("label", [](Event* e, Sel) { return string_object(e->label); });
  has_device<K>();
}

void register_events() {
  method<Device>("newFence",
                 [](Device*, Sel) -> Obj* { return must_fail("fence") ? nullptr : new Fence; });
  has_label<Fence>();
  has_device<Fence>();
  method<Device>("newEvent", [](Device*, Sel) -> Obj* {
    return must_fail("event") ? nullptr : new Event(false);
  });
  method<Device>("newSharedEvent", [](Device*, Sel) -> Obj* {
    return must_fail("event") ? nullptr : new Event(true);
  });
  register_event<Event>();
  register_event<SharedEvent>();
  using S = SharedEvent;
  method<S>("signaledValue", [](Event* e, Sel) { return Gpu::get().value(e); });
  method<S>("setSignaledValue:", [](Event* e, Sel, uint64_t v) { Gpu::get().signal(e, v); });
  method<S>("waitUntilSignaledValue:timeoutMS:",
            [](Event* e, Sel, uint64_t v, uint64_t ms) { return Gpu::get().wait(e, v, ms); });
  method<S>("notifyListener:atValue:block:", [](Event* e, Sel, Obj*, uint64_t v, void* block) {
    {
      std::lock_guard<std::mutex> lock(Gpu::get().m);
      e->listeners.push_back({v, _Block_copy(block)});
    }
    Gpu::get().signal(e, 0);  // it may be there already
  });
  allocatable<Listener>();
  class_method<Listener>("sharedListener", [](Obj*, Sel) -> Obj* {
    static auto* one = new Listener;
    return one;
  });
  using C = CommandBuffer;
  method<C>("encodeSignalEvent:value:",
            [](C* c, Sel, Event* e, uint64_t v) { encode_event(c, e, v, true); });
  method<C>("encodeWaitForEvent:value:",
            [](C* c, Sel, Event* e, uint64_t v) { encode_event(c, e, v, false); });
}

Obj* new_set(ResidencyDescriptor* d, Obj** e) {
  if (settings().os < 15) {
    report("availability", "residency sets need macOS 15, this is %u", settings().os.load());
    return nullptr;
  }
  if (must_fail("residency")) {
    set_error(e, "failure asked for by a test", "MTLResidencySetErrorDomain", 1);
    return nullptr;
  }
  auto* s = new ResidencySet;
  if (d) s->label = d->label;
  return s;
}

void register_sets() {
  using S = ResidencySet;
  allocatable<ResidencyDescriptor>();
  has_label<ResidencyDescriptor>();
  method<ResidencyDescriptor>("setInitialCapacity:", [](ResidencyDescriptor*, Sel, UInt) {});
  method<Device>("newResidencySetWithDescriptor:error:",
                 [](Device*, Sel, ResidencyDescriptor* d, Obj** e) { return new_set(d, e); });
  has_label<S>();
  has_device<S>();
  method<S>("addAllocation:", [](S* s, Sel, Obj* o) { s->add(o); });
  method<S>("addAllocations:count:", [](S* s, Sel, Obj* const* o, UInt n) {
    for (UInt i = 0; i < n; ++i) s->add(o[i]);
  });
  method<S>("removeAllocation:", [](S* s, Sel, Obj* o) { s->remove(o); });
  method<S>("removeAllocations:count:", [](S* s, Sel, Obj* const* o, UInt n) {
    for (UInt i = 0; i < n; ++i) s->remove(o[i]);
  });
  method<S>("removeAllAllocations", [](S* s, Sel) {
    while (!s->members.empty()) s->remove(*s->members.begin());
  });
  method<S>("containsAllocation:", [](S* s, Sel, Obj* o) { return s->members.count(o) != 0; });
  method<S>("allocationCount", [](S* s, Sel) { return UInt{s->members.size()}; });
  method<S>("allAllocations", [](S* s, Sel) {
    auto* all = new NSArray;
    for (Obj* o : s->members) all->add(o);
    return autorelease(all);
  });
  method<S>("allocatedSize", [](S* s, Sel) {
    uint64_t sum = 0;
    for (Obj* o : s->committed) sum += static_cast<Buffer*>(o)->length;
    return sum;
  });
  method<S>("commit", [](S* s, Sel) {
    ++counters().residency_commits;
    s->commit();
  });
  method<S>("requestResidency", [](S* s, Sel) {
    ++counters().residency_requests;
    s->requested = true;
  });
  method<S>("endResidency", [](S* s, Sel) { s->requested = false; });
}

void attach(Queue* q, Obj* set) {
  retain(set);
  q->residency.push_back(set);
}
void detach(Queue* q, Obj* set) {
  auto it = std::find(q->residency.begin(), q->residency.end(), set);
  if (it == q->residency.end())
    return report("validation", "removeResidencySet: of a set that the queue has not");
  q->residency.erase(it);
  release(set);
}
void register_attachment() {
  method<Queue>("addResidencySet:", [](Queue* q, Sel, Obj* s) { attach(q, s); });
  method<Queue>("addResidencySets:count:", [](Queue* q, Sel, Obj* const* s, UInt n) {
    for (UInt i = 0; i < n; ++i) attach(q, s[i]);
  });
  method<Queue>("removeResidencySet:", [](Queue* q, Sel, Obj* s) { detach(q, s); });
  method<Queue>("removeResidencySets:count:", [](Queue* q, Sel, Obj* const* s, UInt n) {
    for (UInt i = 0; i < n; ++i) detach(q, s[i]);
  });
  using C = CommandBuffer;
  method<C>("useResidencySet:", [](C* c, Sel, Obj* s) { c->keep_alive(s); });
  method<C>("useResidencySets:count:", [](C* c, Sel, Obj* const* s, UInt n) {
    for (UInt i = 0; i < n; ++i) c->keep_alive(s[i]);
  });
}

const bool registered = [] {
  register_events();
  register_sets();
  register_attachment();
  return true;
}();

}  // namespace
}  // namespace emu
