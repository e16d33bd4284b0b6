// The objects of Metal that hold state, as the parts of the emulator share them.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "foundation.h"
#include "module.h"

namespace emu {

using UInt = uintptr_t;
struct Size3 {
  UInt w, h, d;
};
struct Range {
  UInt location, length;
};
constexpr size_t kThreadgroupBytes = 32768;
constexpr int kBuffers = 31;

// A name that Metal's objects carry for debugging.
template <class T>
struct Labelled : Object<T> {
  std::string label;
};
template <class T>
void has_label() {
  method<T>("setLabel:", [](T* o, Sel, NSString* s) { o->label = s ? s->text : ""; });
  method<T>("label",
            [](T* o, Sel) -> Obj* { return o->label.empty() ? nullptr : string_object(o->label); });
}

struct Device : Object<Device> {
  static constexpr const char* kName = "MTLDevice";
  std::atomic<UInt> allocated{0};
};
Device* the_device();
template <class T>
void has_device() {
  method<T>("device", [](T*, Sel) -> Obj* { return the_device(); });
}

struct Node;
using NodeP = std::shared_ptr<Node>;

struct Buffer : Labelled<Buffer> {
  static constexpr const char* kName = "MTLBuffer";
  Buffer(size_t bytes, UInt resource_options);
  // Memory of the caller; `freed` is called with it at the end.
  Buffer(void* memory, size_t bytes, UInt resource_options, void* freed);
  ~Buffer() override;
  bool tracked() const { return !(options & 0x100); }
  UInt storage() const { return options >> 4 & 15; }
  char* base = nullptr;
  char* data;
  size_t length, mapped = 0;
  UInt options;
  void* deallocator = nullptr;  // a block
  std::atomic<int> in_flight{0};
  // Where the encoders that used it last end, for resources that Metal tracks.
  NodeP writer;
  std::vector<NodeP> readers;
};

struct FunctionConstants : Object<FunctionConstants> {
  static constexpr const char* kName = "MTLFunctionConstantValues";
  ConstantSet values;
};

struct CompileOptions : Object<CompileOptions> {
  static constexpr const char* kName = "MTLCompileOptions";
  bool fast = true, fast_functions = true;
  UInt version = 0x30001;
  std::map<std::string, std::string> macros;
};

struct Library : Labelled<Library> {
  static constexpr const char* kName = "MTLLibrary";
  std::shared_ptr<Program> program;
};
struct Function : Labelled<Function> {
  static constexpr const char* kName = "MTLFunction";
  std::shared_ptr<Kernel> kernel;
};
struct Pipeline : Object<Pipeline> {
  static constexpr const char* kName = "MTLComputePipelineState";
  std::shared_ptr<Kernel> kernel;
  std::string label;
  UInt max_threads = 1024;
  bool whole_simdgroups = false;
};

}  // namespace emu
