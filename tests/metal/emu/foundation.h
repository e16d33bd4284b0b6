// The objects of Foundation that metal-cpp code meets.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "objc.h"

namespace emu {

struct NSString : Object<NSString> {
  static constexpr const char* kName = "NSString";
  NSString() = default;
  explicit NSString(std::string s) : text(std::move(s)) {}
  std::string text;
};
Obj* string_object(const std::string& s);  // autoreleased

struct NSArray : Object<NSArray> {
  static constexpr const char* kName = "NSArray";
  ~NSArray() override { clear(); }
  void clear();
  void add(Obj* o) { items.push_back(retain(o)); }
  std::vector<Obj*> items;
};

struct NSDictionary : Object<NSDictionary> {
  static constexpr const char* kName = "NSDictionary";
  ~NSDictionary() override;
  void put(Obj* key, Obj* value);
  Obj* get(Obj* key) const;
  std::vector<std::pair<Obj*, Obj*>> items;
};

struct NSNumber : Object<NSNumber> {
  static constexpr const char* kName = "NSNumber";
  double real = 0;
  long long integer = 0;
};

struct NSURL : Object<NSURL> {
  static constexpr const char* kName = "NSURL";
  std::string path;
};

struct NSError : Object<NSError> {
  static constexpr const char* kName = "NSError";
  ~NSError() override;
  std::string text, domain;
  long code = 0;
  Obj* user_info = nullptr;
};
void set_error(Obj** out, const std::string& text, const char* domain, long code);
bool same(Obj* a, Obj* b);

}  // namespace emu
