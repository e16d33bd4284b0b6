#include "foundation.h"

#include <cstdlib>
#include <thread>

#include "settings.h"

namespace emu {
namespace {

struct NSProcessInfo : Object<NSProcessInfo> {
  static constexpr const char* kName = "NSProcessInfo";
};
struct Version {
  long major, minor, patch;
};

void register_strings() {
  allocatable<NSString>();
  class_method<NSString>("stringWithCString:encoding:",
                         [](Obj*, Sel, const char* s, uintptr_t) { return string_object(s); });
  class_method<NSString>("stringWithString:",
                         [](Obj*, Sel, NSString* s) { return string_object(s->text); });
  class_method<NSString>("string", [](Obj*, Sel) { return string_object(""); });
  method<NSString>(
      "initWithCString:encoding:", [](NSString* s, Sel, const char* text, uintptr_t) -> Obj* {
        s->text = text;
        return s;
      });
  method<NSString>("initWithString:", [](NSString* s, Sel, NSString* o) -> Obj* {
    s->text = o->text;
    return s;
  });
  method<NSString>("UTF8String", [](NSString* s, Sel) { return s->text.c_str(); });
  method<NSString>("cStringUsingEncoding:",
                   [](NSString* s, Sel, uintptr_t) { return s->text.c_str(); });
  method<NSString>("fileSystemRepresentation", [](NSString* s, Sel) { return s->text.c_str(); });
  method<NSString>("length",
                   [](NSString* s, Sel) { return static_cast<uintptr_t>(s->text.size()); });
  method<NSString>("lengthOfBytesUsingEncoding:", [](NSString* s, Sel, uintptr_t) {
    return static_cast<uintptr_t>(s->text.size());
  });
  method<NSString>("characterAtIndex:", [](NSString* s, Sel, uintptr_t i) {
    return static_cast<unsigned short>(s->text.at(i));
  });
  method<NSString>("isEqualToString:",
                   [](NSString* s, Sel, NSString* o) { return o && s->text == o->text; });
  method<NSString>("isEqual:", [](NSString* s, Sel, Obj* o) { return same(s, o); });
  method<NSString>("description", [](NSString* s, Sel) { return string_object(s->text); });
  method<NSString>("stringByAppendingString:",
                   [](NSString* s, Sel, NSString* o) { return string_object(s->text + o->text); });
}

NSArray* array_of(Obj* const* objects, uintptr_t n) {
  auto* a = new NSArray;
  for (uintptr_t i = 0; i < n; ++i) a->add(objects[i]);
  return a;
}
void register_arrays() {
  allocatable<NSArray>();
  class_method<NSArray>("array", [](Obj*, Sel) { return autorelease(new NSArray); });
  class_method<NSArray>("arrayWithObject:",
                        [](Obj*, Sel, Obj* o) { return autorelease(array_of(&o, 1)); });
  class_method<NSArray>("arrayWithObjects:count:", [](Obj*, Sel, Obj* const* o, uintptr_t n) {
    return autorelease(array_of(o, n));
  });
  method<NSArray>(
      "initWithObjects:count:", [](NSArray* a, Sel, Obj* const* o, uintptr_t n) -> Obj* {
        for (uintptr_t i = 0; i < n; ++i) a->add(o[i]);
        return a;
      });
  method<NSArray>("count", [](NSArray* a, Sel) { return static_cast<uintptr_t>(a->items.size()); });
  method<NSArray>("objectAtIndex:", [](NSArray* a, Sel, uintptr_t i) -> Obj* {
    if (i < a->items.size()) return a->items[i];
    report("range", "objectAtIndex: %zu of an array of %zu", i, a->items.size());
    return nullptr;
  });
}

NSDictionary* dictionary_of(Obj* const* values, Obj* const* keys, uintptr_t n) {
  auto* d = new NSDictionary;
  for (uintptr_t i = 0; i < n; ++i) d->put(keys[i], values[i]);
  return d;
}
void register_dictionaries() {
  allocatable<NSDictionary>();
  class_method<NSDictionary>("dictionary", [](Obj*, Sel) { return autorelease(new NSDictionary); });
  class_method<NSDictionary>("dictionaryWithObject:forKey:", [](Obj*, Sel, Obj* value, Obj* key) {
    return autorelease(dictionary_of(&value, &key, 1));
  });
  class_method<NSDictionary>("dictionaryWithObjects:forKeys:count:",
                             [](Obj*, Sel, Obj* const* values, Obj* const* keys, uintptr_t n) {
                               return autorelease(dictionary_of(values, keys, n));
                             });
  method<NSDictionary>(
      "initWithObjects:forKeys:count:",
      [](NSDictionary* d, Sel, Obj* const* values, Obj* const* keys, uintptr_t n) -> Obj* {
        for (uintptr_t i = 0; i < n; ++i) d->put(keys[i], values[i]);
        return d;
      });
  method<NSDictionary>(
      "count", [](NSDictionary* d, Sel) { return static_cast<uintptr_t>(d->items.size()); });
  method<NSDictionary>("objectForKey:", [](NSDictionary* d, Sel, Obj* key) { return d->get(key); });
}

template <class T>
void number_type(const char* name) {
  std::string with = std::string("numberWith") + name + ":",
              init = std::string("initWith") + name + ":";
  class_method<NSNumber>(with.c_str(), [](Obj*, Sel, T v) {
    auto* n = new NSNumber;
    n->real = static_cast<double>(v);
    n->integer = static_cast<long long>(v);
    return autorelease(n);
  });
  method<NSNumber>(init.c_str(), [](NSNumber* n, Sel, T v) -> Obj* {
    n->real = static_cast<double>(v);
    n->integer = static_cast<long long>(v);
    return n;
  });
}
template <class T>
void number_value(const char* name) {
  method<NSNumber>(name, [](NSNumber* n, Sel) { return static_cast<T>(n->integer); });
}
void register_numbers() {
  allocatable<NSNumber>();
  number_type<bool>("Bool");
  number_type<char>("Char");
  number_type<unsigned char>("UnsignedChar");
  number_type<short>("Short");
  number_type<unsigned short>("UnsignedShort");
  number_type<int>("Int");
  number_type<unsigned>("UnsignedInt");
  number_type<long>("Long");
  number_type<unsigned long>("UnsignedLong");
  number_type<long long>("LongLong");
  number_type<unsigned long long>("UnsignedLongLong");
  number_type<float>("Float");
  number_type<double>("Double");
  number_value<bool>("boolValue");
  number_value<char>("charValue");
  number_value<unsigned char>("unsignedCharValue");
  number_value<short>("shortValue");
  number_value<unsigned short>("unsignedShortValue");
  number_value<int>("intValue");
  number_value<unsigned>("unsignedIntValue");
  number_value<long>("longValue");
  number_value<unsigned long>("unsignedLongValue");
  number_value<long long>("longLongValue");
  number_value<unsigned long long>("unsignedLongLongValue");
  number_value<long>("integerValue");
  number_value<unsigned long>("unsignedIntegerValue");
  method<NSNumber>("floatValue", [](NSNumber* n, Sel) { return static_cast<float>(n->real); });
  method<NSNumber>("doubleValue", [](NSNumber* n, Sel) { return n->real; });
  method<NSNumber>("isEqualToNumber:", [](NSNumber* n, Sel, Obj* o) { return same(n, o); });
  method<NSNumber>("isEqual:", [](NSNumber* n, Sel, Obj* o) { return same(n, o); });
  method<NSNumber>("stringValue", [](NSNumber* n, Sel) {
    return string_object(n->real == static_cast<double>(n->integer) ? std::to_string(n->integer)
                                                                    : std::to_string(n->real));
  });
}

void register_urls() {
  allocatable<NSURL>();
  class_method<NSURL>("fileURLWithPath:", [](Obj*, Sel, NSString* s) {
    auto* u = new NSURL;
    u->path = s->text;
    return autorelease(u);
  });
  auto init = [](NSURL* u, Sel, NSString* s) -> Obj* {
    u->path = s->text.rfind("file://", 0) == 0 ? s->text.substr(7) : s->text;
    return u;
  };
  method<NSURL>("initFileURLWithPath:", init);
  method<NSURL>("initWithString:", init);
  method<NSURL>("fileSystemRepresentation", [](NSURL* u, Sel) { return u->path.c_str(); });
}

void register_errors() {
  method<NSError>("localizedDescription", [](NSError* e, Sel) { return string_object(e->text); });
  method<NSError>("description", [](NSError* e, Sel) { return string_object(e->text); });
  method<NSError>("localizedFailureReason", [](NSError*, Sel) -> Obj* { return nullptr; });
  method<NSError>("code", [](NSError* e, Sel) { return e->code; });
  method<NSError>("domain", [](NSError* e, Sel) { return string_object(e->domain); });
  method<NSError>("userInfo", [](NSError* e, Sel) -> Obj* {
    return e->user_info ? e->user_info : autorelease(new NSDictionary);
  });
}

void register_process() {
  class_method<NSProcessInfo>("processInfo", [](Obj*, Sel) -> Obj* {
    static auto* info = new NSProcessInfo;
    return info;
  });
  method<NSProcessInfo>("isOperatingSystemAtLeastVersion:",
                        [](NSProcessInfo*, Sel, Version v) { return v.major <= settings().os; });
  method<NSProcessInfo>("operatingSystemVersion", [](NSProcessInfo*, Sel) {
    return Version{settings().os, 0, 0};
  });
  method<NSProcessInfo>("operatingSystemVersionString", [](NSProcessInfo*, Sel) {
    return string_object("Version " + std::to_string(settings().os) + ".0 (emulated)");
  });
  method<NSProcessInfo>("processorCount", [](NSProcessInfo*, Sel) {
    return static_cast<uintptr_t>(std::thread::hardware_concurrency());
  });
}

const bool registered = [] {
  register_strings();
  register_arrays();
  register_dictionaries();
  register_numbers();
  register_urls();
  register_errors();
  register_process();
  return true;
}();

}  // namespace

Obj* string_object(const std::string& s) {
  return autorelease(new NSString(s));
}

void NSArray::clear() {
  for (Obj* o : items) release(o);
  items.clear();
}

NSDictionary::~NSDictionary() {
  for (auto& [key, value] : items) {
    release(key);
    release(value);
  }
}
void NSDictionary::put(Obj* key, Obj* value) {
  items.emplace_back(retain(key), retain(value));
}
Obj* NSDictionary::get(Obj* key) const {
  for (auto& [k, v] : items)
    if (same(k, key)) return v;
  return nullptr;
}

NSError::~NSError() {
  release(user_info);
}

bool same(Obj* a, Obj* b) {
  if (a == b) return true;
  if (!a || !b || a->cls != b->cls) return false;
  if (auto* s = dynamic_cast<NSString*>(a)) return s->text == static_cast<NSString*>(b)->text;
  if (auto* n = dynamic_cast<NSNumber*>(a))
    return n->integer == static_cast<NSNumber*>(b)->integer &&
           n->real == static_cast<NSNumber*>(b)->real;
  return false;
}

void set_error(Obj** out, const std::string& text, const char* domain, long code) {
  if (!out) return;
  auto* e = new NSError;
  e->text = text;
  e->domain = domain;
  e->code = code;
  *out = autorelease(e);
}

}  // namespace emu
