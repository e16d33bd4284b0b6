#include "objc.h"

#include <objc/message.h>

#include <cstdlib>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "settings.h"

namespace emu {
namespace {

std::mutex& registry() {
  static auto* m = new std::mutex;
  return *m;
}
std::map<std::string, ClassInfo*>& classes() {
  static auto* m = new std::map<std::string, ClassInfo*>;
  return *m;
}

// Shells of freed objects, which name late messages. The oldest are given back.
constexpr size_t kShells = 1 << 15;
void keep_shell(Obj* o) {
  static auto* shells = new std::deque<Obj*>;
  std::lock_guard<std::mutex> lock(registry());
  shells->push_back(o);
  if (shells->size() <= kShells) return;
  ::operator delete(shells->front());
  shells->pop_front();
}

thread_local std::vector<std::vector<Obj*>> pools;

void pool_push() {
  pools.emplace_back();
}
void pool_pop() {
  auto objects = std::move(pools.back());
  pools.pop_back();
  for (Obj* o : objects) release(o);
}
void pop_down_to(size_t depth) {
  while (!pools.empty() && pools.size() >= depth) pool_pop();
}

struct NSObject : Object<NSObject> {
  static constexpr const char* kName = "NSObject";
};
struct Pool : Object<Pool> {
  static constexpr const char* kName = "NSAutoreleasePool";
  Pool() {
    pool_push();
    depth = pools.size();
  }
  ~Pool() override { pop_down_to(depth); }
  size_t depth;
};

Imp find(const ClassInfo& c, Sel selector) {
  for (const ClassInfo* k : {&c, static_cast<const ClassInfo*>(&NSObject::klass())}) {
    auto it = k->methods.find(selector);
    if (it != k->methods.end()) return it->second;
  }
  return nullptr;
}

const bool registered = [] {
  allocatable<Pool>();
  method<NSObject>("retain", [](Obj* o, Sel) { return retain(o); });
  method<NSObject>("release", [](Obj* o, Sel) { release(o); });
  method<NSObject>("autorelease", [](Obj* o, Sel) { return autorelease(o); });
  method<NSObject>("retainCount",
                   [](Obj* o, Sel) { return static_cast<uintptr_t>(o->references.load()); });
  method<NSObject>("init", [](Obj* o, Sel) { return o; });
  method<NSObject>("hash", [](Obj* o, Sel) { return reinterpret_cast<uintptr_t>(o); });
  method<NSObject>("isEqual:", [](Obj* o, Sel, Obj* p) { return o == p; });
  method<NSObject>("respondsToSelector:", [](Obj* o, Sel, Sel what) {
    return find(*o->cls, what) != nullptr && since(what) <= settings().os;
  });
  method<NSObject>("methodSignatureForSelector:", [](Obj*, Sel, Sel) -> Obj* { return nullptr; });
  class_method<NSObject>("alloc", [](Obj* o, Sel) -> Obj* {
    auto* c = static_cast<ClassInfo*>(o);
    if (c->make) return c->make();
    report("alloc", "class %s cannot be allocated here", c->name.c_str());
    return nullptr;
  });
  method<Pool>("drain", [](Obj* o, Sel) { release(o); });
  return true;
}();

}  // namespace

Obj::Obj(ClassInfo* c) : cls(c) {
  if (c) ++c->live;
}
Obj::~Obj() {
  if (cls) --cls->live;
}

Sel intern(const char* name) {
  static auto* names = new std::set<std::string>;
  std::lock_guard<std::mutex> lock(registry());
  return names->insert(name).first->c_str();
}

ClassInfo& class_named(const char* name) {
  std::lock_guard<std::mutex> lock(registry());
  ClassInfo*& c = classes()[name];
  if (!c) c = new ClassInfo(name);
  return *c;
}

Obj* retain(Obj* o) {
  if (o) ++o->references;
  return o;
}

void release(Obj* o) {
  if (!o || !o->cls) return;
  if (o->dead) {
    report("over-release", "release of a freed %s", o->cls->name.c_str());
    return;
  }
  if (--o->references != 0) return;
  ClassInfo* c = o->cls;
  o->~Obj();
  new (o) Obj(nullptr);
  o->cls = c;
  o->dead = true;
  o->references = 0;
  keep_shell(o);
}

Obj* autorelease(Obj* o) {
  if (!o) return o;
  if (pools.empty())
    report("no-pool", "autorelease of a %s with no pool in place: leaked", o->cls->name.c_str());
  else pools.back().push_back(o);
  return o;
}

PoolScope::PoolScope() {
  pool_push();
}
PoolScope::~PoolScope() {
  pool_pop();
}

extern "C" Imp metalemu_lookup(Obj* o, Sel selector) {
  if (!o->cls) {
    auto* c = static_cast<ClassInfo*>(o);
    for (ClassInfo* k : {c, &NSObject::klass()}) {
      auto it = k->class_methods.find(selector);
      if (it != k->class_methods.end()) return it->second;
    }
    report("selector", "+[%s %s] is not emulated", c->name.c_str(), selector);
    abort();
  }
  if (o->dead) {
    report("use-after-free", "-[%s %s] sent to a freed object", o->cls->name.c_str(), selector);
    abort();
  }
  if (Imp f = find(*o->cls, selector)) return f;
  report("selector", "-[%s %s] is not emulated", o->cls->name.c_str(), selector);
  abort();
}

std::string live_objects() {
  std::lock_guard<std::mutex> lock(registry());
  std::string text;
  for (auto& [name, c] : classes())
    if (c->live) text += name + " " + std::to_string(c->live) + "\n";
  return text;
}

}  // namespace emu

extern "C" {
// metal-cpp looks up every class at start. One that is not emulated is known by its name alone, so
// that the first message to it is named; to nil it would vanish.
Class objc_lookUpClass(const char* n) {
  return reinterpret_cast<Class>(&emu::class_named(n));
}
Class objc_getClass(const char* n) {
  return objc_lookUpClass(n);
}
Protocol* objc_getProtocol(const char*) {
  return nullptr;
}
SEL sel_registerName(const char* n) {
  return reinterpret_cast<SEL>(emu::intern(n));
}
const char* sel_getName(SEL s) {
  return reinterpret_cast<const char*>(s);
}
void* objc_autoreleasePoolPush(void) {
  emu::pool_push();
  return reinterpret_cast<void*>(emu::pools.size());
}
void objc_autoreleasePoolPop(void* pool) {
  emu::pop_down_to(reinterpret_cast<size_t>(pool));
}
long metalemu_live(const char* cls) {
  return emu::class_named(cls).live;
}
const char* metalemu_live_text(void) {
  static thread_local std::string text;
  text = emu::live_objects();
  return text.c_str();
}
}
