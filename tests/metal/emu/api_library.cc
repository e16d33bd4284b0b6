// Libraries, functions, pipelines, their reflection, and binary archives.
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>

#include "objects.h"
#include "settings.h"

namespace emu {
namespace {

constexpr const char* kLibraryDomain = "MTLLibraryErrorDomain";
constexpr const char* kPipelineDomain = "AGXMetal13_3";
constexpr const char* kArchiveDomain = "MTLBinaryArchiveDomain";
constexpr const char* kArchiveHead = "emulated binary archive 1";

struct Binding : Object<Binding> {
  static constexpr const char* kName = "MTLBinding";
  Argument argument;
};
struct Reflection : Object<Reflection> {
  static constexpr const char* kName = "MTLComputePipelineReflection";
  std::shared_ptr<Kernel> kernel;
};
struct Archive : Labelled<Archive> {
  static constexpr const char* kName = "MTLBinaryArchive";
  std::set<std::string> kernels;
};
struct ArchiveDescriptor : Object<ArchiveDescriptor> {
  static constexpr const char* kName = "MTLBinaryArchiveDescriptor";
  ~ArchiveDescriptor() override { release(url); }
  NSURL* url = nullptr;
};
struct PipelineDescriptor : Labelled<PipelineDescriptor> {
  static constexpr const char* kName = "MTLComputePipelineDescriptor";
  ~PipelineDescriptor() override {
    release(function);
    release(archives);
  }
  Function* function = nullptr;
  NSArray* archives = nullptr;
  bool whole_simdgroups = false;
  UInt max_threads = 0;
};

template <class T>
void assign(T*& slot, T* value) {
  retain(value);
  release(slot);
  slot = value;
}

Function* new_function(Library* l, NSString* name, FunctionConstants* c, Obj** e) {
  std::string error;
  if (must_fail("function")) {
    set_error(e, "failure asked for by a test", kLibraryDomain, 1);
    return nullptr;
  }
  auto kernel = Kernel::make(l->program, name->text, c ? &c->values : nullptr, error);
  if (!kernel) {
    set_error(e, error, kLibraryDomain, 5);  // MTLLibraryErrorFunctionNotFound
    return nullptr;
  }
  auto* f = new Function;
  f->kernel = kernel;
  return f;
}

Obj* new_library(NSString* source, CompileOptions* o, Obj** e) {
  long code = 3;  // MTLLibraryErrorCompileFailure
  if (must_fail("library", &code)) {
    set_error(e, "failure asked for by a test", kLibraryDomain, code);
    return nullptr;
  }
  UInt version = o ? o->version : 0x30001;
  std::vector<std::string> defines;
  if (o)
    for (auto& [name, value] : o->macros) defines.push_back(name + "=" + value);
  auto program =
      std::make_shared<Program>(source->text, !o || o->fast, !o || o->fast_functions,
                                (version >> 16) * 100 + (version & 0xffff) * 10, defines);
  std::string error;
  if (!program->module(settings().check, nullptr, error)) {
    set_error(e, error, kLibraryDomain, 3);
    return nullptr;
  }
  auto* l = new Library;
  l->program = program;
  return l;
}

void reflect(const Pipeline& p, Obj** out) {
  if (!out) return;
  auto* r = new Reflection;
  r->kernel = p.kernel;
  *out = autorelease(r);
}

// What an archive knows a pipeline by.
std::string key_of(const Function& f, const PipelineDescriptor* d) {
  return f.kernel->identity() + " " + std::to_string(d->max_threads);
}

Obj* new_pipeline(Function* f, PipelineDescriptor* d, UInt options, Obj** reflection, Obj** e) {
  long code = 1;
  if (!f || must_fail("pipeline", &code)) {
    set_error(e, f ? "failure asked for by a test" : "no function", kPipelineDomain, code);
    return nullptr;
  }
  bool hit = false;
  if (d && d->archives)
    for (Obj* a : d->archives->items)
      hit |= static_cast<Archive*>(a)->kernels.count(key_of(*f, d)) != 0;
  if (hit) ++counters().archive_hits;
  if (!hit && options & 4) {  // MTLPipelineOptionFailOnBinaryArchiveMiss
    set_error(e, "the binary archives do not hold '" + f->kernel->name + "'", kPipelineDomain, 2);
    return nullptr;
  }
  auto* p = new Pipeline;
  p->kernel = f->kernel;
  p->max_threads = f->kernel->max_threads;
  if (d) {
    p->label = d->label;
    p->whole_simdgroups = d->whole_simdgroups;
    if (d->max_threads) p->max_threads = std::min(p->max_threads, d->max_threads);
  }
  reflect(*p, reflection);
  return p;
}

void register_options() {
  allocatable<CompileOptions>();
  method<CompileOptions>("setFastMathEnabled:",
                         [](CompileOptions* o, Sel, bool v) { o->fast = o->fast_functions = v; });
  method<CompileOptions>("setMathMode:", [](CompileOptions* o, Sel, long v) {
    if (settings().os < 15) report("availability", "math modes need macOS 15");
    o->fast = v == 2;
  });
  method<CompileOptions>("setMathFloatingPointFunctions:", [](CompileOptions* o, Sel, long v) {
    if (settings().os < 15) report("availability", "math modes need macOS 15");
    o->fast_functions = v == 0;
  });
  method<CompileOptions>("setOptimizationLevel:", [](CompileOptions*, Sel, long) {});
  method<CompileOptions>("setPreserveInvariance:", [](CompileOptions*, Sel, bool) {});
  method<CompileOptions>("setLanguageVersion:",
                         [](CompileOptions* o, Sel, UInt v) { o->version = v; });
  method<CompileOptions>("setPreprocessorMacros:", [](CompileOptions* o, Sel, NSDictionary* d) {
    o->macros.clear();
    for (auto& [key, value] : d->items) {
      auto* n = dynamic_cast<NSNumber*>(value);
      o->macros[static_cast<NSString*>(key)->text] =
          n ? std::to_string(n->integer) : static_cast<NSString*>(value)->text;
    }
  });
  allocatable<FunctionConstants>();
  method<FunctionConstants>("setConstantValue:type:atIndex:", [](FunctionConstants* c, Sel,
                                                                 const void* p, UInt type, UInt i) {
    // MTLDataType: 3 float, 16 half, 29 int, 33 uint, 37 short, 41 ushort, 53 bool, 121 bfloat
    size_t n = type == 3 || type == 29 || type == 33 ? 4 : type == 53 ? 1 : 2;
    c->values[i].assign(static_cast<const char*>(p), static_cast<const char*>(p) + n);
  });
}

void register_libraries() {
  method<Device>("newLibraryWithSource:options:error:",
                 [](Device*, Sel, NSString* source, CompileOptions* o, Obj** e) -> Obj* {
                   return new_library(source, o, e);
                 });
  has_label<Library>();
  has_device<Library>();
  method<Library>("newFunctionWithName:", [](Library* l, Sel, NSString* n) -> Obj* {
    return new_function(l, n, nullptr, nullptr);
  });
  method<Library>("newFunctionWithName:constantValues:error:",
                  [](Library* l, Sel, NSString* n, FunctionConstants* c, Obj** e) -> Obj* {
                    return new_function(l, n, c, e);
                  });
  method<Library>("functionNames", [](Library* l, Sel) {
    auto* names = new NSArray;
    std::string error;
    auto m = l->program->module(settings().check, nullptr, error);
    for (const mslrt::Entry* e = m->table; e->name; ++e) {
      auto* s = new NSString(e->name);
      names->add(s);
      release(s);
    }
    return autorelease(names);
  });
  has_label<Function>();
  has_device<Function>();
  method<Function>("name", [](Function* f, Sel) { return string_object(f->kernel->name); });
  method<Function>("functionType", [](Function*, Sel) { return UInt{3}; });  // a kernel
}

void register_descriptors() {
  using D = PipelineDescriptor;
  allocatable<D>();
  has_label<D>();
  method<D>("setComputeFunction:", [](D* d, Sel, Function* f) { assign(d->function, f); });
  method<D>("computeFunction", [](D* d, Sel) -> Obj* { return d->function; });
  method<D>("setBinaryArchives:", [](D* d, Sel, NSArray* a) { assign(d->archives, a); });
  method<D>("setThreadGroupSizeIsMultipleOfThreadExecutionWidth:",
            [](D* d, Sel, bool v) { d->whole_simdgroups = v; });
  method<D>("setMaxTotalThreadsPerThreadgroup:", [](D* d, Sel, UInt n) { d->max_threads = n; });
  method<D>("setSupportIndirectCommandBuffers:", [](D*, Sel, bool) {});
  method<D>("setShaderValidation:", [](D*, Sel, long) {});
  method<D>("reset", [](D* d, Sel) {
    assign<Function>(d->function, nullptr);
    assign<NSArray>(d->archives, nullptr);
    d->label.clear();
    d->whole_simdgroups = false;
    d->max_threads = 0;
  });
}

void register_pipelines() {
  method<Device>(
      "newComputePipelineStateWithFunction:error:", [](Device*, Sel, Function* f, Obj** e) -> Obj* {
        return new_pipeline(f, nullptr, 0, nullptr, e);
      });
  method<Device>("newComputePipelineStateWithFunction:options:reflection:error:",
                 [](Device*, Sel, Function* f, UInt o, Obj** r, Obj** e) -> Obj* {
                   return new_pipeline(f, nullptr, o, r, e);
                 });
  method<Device>("newComputePipelineStateWithDescriptor:options:reflection:error:",
                 [](Device*, Sel, PipelineDescriptor* d, UInt o, Obj** r, Obj** e) -> Obj* {
                   return new_pipeline(d->function, d, o, r, e);
                 });
  has_device<Pipeline>();
  method<Pipeline>("label", [](Pipeline* p, Sel) { return string_object(p->label); });
  method<Pipeline>("maxTotalThreadsPerThreadgroup",
                   [](Pipeline* p, Sel) { return p->max_threads; });
  method<Pipeline>("threadExecutionWidth", [](Pipeline*, Sel) { return UInt{32}; });
}

Obj* bindings_of(Reflection* r) {
  auto* all = new NSArray;
  for (const Argument& a : r->kernel->arguments) {
    if (a.kind != "buffer" && a.kind != "threadgroup") continue;
    auto* b = new Binding;
    b->argument = a;
    all->add(b);
    release(b);
  }
  return autorelease(all);
}
void register_reflection() {
  method<Reflection>("bindings", [](Reflection* r, Sel) { return bindings_of(r); });
  method<Reflection>("arguments", [](Reflection* r, Sel) { return bindings_of(r); });
  method<Binding>("name", [](Binding* b, Sel) { return string_object(b->argument.name); });
  method<Binding>("index", [](Binding* b, Sel) { return UInt{b->argument.index}; });
  method<Binding>("type", [](Binding* b, Sel) {  // buffer 0, threadgroup memory 1
    return static_cast<long>(b->argument.kind == "threadgroup");
  });
  method<Binding>("access", [](Binding* b, Sel) { return UInt{b->argument.write ? 1u : 0u}; });
  method<Binding>("isUsed", [](Binding*, Sel) { return true; });
  method<Binding>("isActive", [](Binding*, Sel) { return true; });
  method<Binding>("isArgument", [](Binding*, Sel) { return true; });
  method<Binding>("bufferAlignment", [](Binding* b, Sel) { return UInt{b->argument.align}; });
  method<Binding>("bufferDataSize", [](Binding* b, Sel) { return UInt{b->argument.size}; });
}

Obj* new_archive(ArchiveDescriptor* d, Obj** e) {
  bool failing = must_fail("archive_load");
  auto* a = new Archive;
  if (d->url || failing) {
    std::ifstream f(d->url ? d->url->path : "");
    std::string line;
    if (failing || !std::getline(f, line) || line != kArchiveHead) {
      set_error(e, "the file is no archive of this device", kArchiveDomain, 1);
      release(a);
      return nullptr;
    }
    while (std::getline(f, line)) a->kernels.insert(line);
  }
  return a;
}
bool save_archive(Archive* a, NSURL* url, Obj** e) {
  std::ofstream f(url->path);
  if (!must_fail("archive_save") && f) {
    f << kArchiveHead << "\n";
    for (auto& k : a->kernels) f << k << "\n";
    f.flush();
    if (f) {
      ++counters().archive_writes;
      return true;
    }
  }
  set_error(e, "the archive cannot be written", kArchiveDomain, 4);
  return false;
}
void register_archives() {
  allocatable<ArchiveDescriptor>();
  method<ArchiveDescriptor>("setUrl:",
                            [](ArchiveDescriptor* d, Sel, NSURL* u) { assign(d->url, u); });
  method<ArchiveDescriptor>("url", [](ArchiveDescriptor* d, Sel) -> Obj* { return d->url; });
  method<Device>("newBinaryArchiveWithDescriptor:error:",
                 [](Device*, Sel, ArchiveDescriptor* d, Obj** e) { return new_archive(d, e); });
  has_label<Archive>();
  has_device<Archive>();
  method<Archive>("addComputePipelineFunctionsWithDescriptor:error:",
                  [](Archive* a, Sel, PipelineDescriptor* d, Obj** e) {
                    if (!d->function || must_fail("archive_add")) {
                      set_error(e, "the pipeline cannot be added", kArchiveDomain, 3);
                      return false;
                    }
                    a->kernels.insert(key_of(*d->function, d));
                    return true;
                  });
  method<Archive>("serializeToURL:error:",
                  [](Archive* a, Sel, NSURL* u, Obj** e) { return save_archive(a, u, e); });
}

const bool registered = [] {
  register_options();
  register_libraries();
  register_descriptors();
  register_pipelines();
  register_reflection();
  register_archives();
  return true;
}();

}  // namespace
}  // namespace emu
