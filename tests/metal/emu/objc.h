// A very small Objective-C runtime: what the messages of metal-cpp need on Linux.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace emu {

struct ClassInfo;

// Every receiver of a message. A class is one too, with `cls` null.
struct Obj {
  explicit Obj(ClassInfo* c);
  virtual ~Obj();
  ClassInfo* cls;
  std::atomic<int> references{1};
  bool dead = false;
};

using Imp = void (*)();
using Sel = const char*;  // the interned name of a selector

struct ClassInfo : Obj {
  explicit ClassInfo(std::string n) : Obj(nullptr), name(std::move(n)) {}
  std::string name;
  Obj* (*make)() = nullptr;  // for +alloc
  std::unordered_map<Sel, Imp> methods, class_methods;
  std::atomic<long> live{0};
  bool known = false;  // something defined it; other names are looked up by metal-cpp alone
};

Sel intern(const char* name);
ClassInfo& class_named(const char* name);
Obj* retain(Obj* o);
void release(Obj* o);
Obj* autorelease(Obj* o);
// A pool for code that runs on a thread of the emulator, as dispatch queues have one.
struct PoolScope {
  PoolScope();
  ~PoolScope();
};

// An emulated class: T::kName is its name, and T inherits Object<T>.
template <class T>
struct Object : Obj {
  Object() : Obj(&klass()) {}
  static ClassInfo& klass() {
    static ClassInfo& c = class_named(T::kName);
    return c;
  }
};

template <class R, class S, class... A>
Imp as_imp(R (*f)(S*, Sel, A...)) {
  return reinterpret_cast<Imp>(f);
}
template <class T, class F>
void method(const char* selector, F f) {
  T::klass().known = true;
  T::klass().methods[intern(selector)] = as_imp(+f);
}
template <class T, class F>
void class_method(const char* selector, F f) {
  T::klass().known = true;
  T::klass().class_methods[intern(selector)] = as_imp(+f);
}
template <class T>
void allocatable() {
  T::klass().make = []() -> Obj* { return new T; };
}

}  // namespace emu
