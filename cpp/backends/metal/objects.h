// metal-cpp, and the few words in which the files of this folder use it. Included by them alone.
#pragma once
// What metal-cpp, depending on its version, uses and leaves to the system.
#include <dispatch/dispatch.h>
#include <mach/mach.h>
#include <objc/message.h>
#include <objc/runtime.h>
#include <cmath>

#include <Foundation/Foundation.hpp>
#include <Metal/Metal.hpp>

#include <string>

namespace accel::metal {

// Owns one reference. `adopt` takes over what new...() and alloc() give, `keep` adds one.
template <class T>
using Ref = NS::SharedPtr<T>;
template <class T>
Ref<T> adopt(T* object) {
  return NS::TransferPtr(object);
}
template <class T>
Ref<T> keep(T* object) {
  return NS::RetainPtr(object);
}

// Objects that calls give without handing them over live until the end of the scope. Every thread
// that calls Metal needs one.
class Scope {
 public:
  Scope() : pool_(NS::AutoreleasePool::alloc()->init()) {}
  ~Scope() { pool_->release(); }
  Scope(const Scope&) = delete;

 private:
  NS::AutoreleasePool* const pool_;
};

inline NS::String* text(const std::string& s) {
  return NS::String::string(s.c_str(), NS::UTF8StringEncoding);
}
inline std::string text(const NS::String* s) {
  return s && s->utf8String() ? s->utf8String() : "";
}
inline std::string text(const NS::Error* e) {
  return e ? text(e->localizedDescription()) : "no reason is given";
}

// Whether the system is new enough to have a method.
inline bool responds(const void* object, const char* selector) {
  using Ask = bool (*)(const void*, SEL, SEL);
  return reinterpret_cast<Ask>(&objc_msgSend)(object, sel_registerName("respondsToSelector:"),
                                              sel_registerName(selector));
}

}  // namespace accel::metal
