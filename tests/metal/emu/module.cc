#include "module.h"

#include <dlfcn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "settings.h"

namespace emu {
namespace {

std::string own_folder() {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&run_command), &info);
  std::string path = info.dli_fname;
  size_t slash = path.rfind('/');
  return slash == path.npos ? "." : path.substr(0, slash);
}
std::string home() {
  static const std::string path = environment("MSLEMU_HOME", MSLEMU_DEFAULT_HOME);
  return path;
}
std::string translator() {
  return home() + "/../../tools/mslc";
}
std::string cache() {
  static const std::string path = [] {
    std::string p = environment("MSLEMU_CACHE", (own_folder() + "/mslemu-cache").c_str());
    mkdir(p.c_str(), 0777);
    return p;
  }();
  return path;
}
std::string python() {
  return environment("MSLEMU_PYTHON", "python3");
}
std::string compiler() {
  return environment("MSLEMU_CXX", "clang++-19");
}
// The translator and the shim are part of every key.
const std::string& tools() {
  static const std::string text = [] {
    int status;
    return run_command("cat " + translator() + "/*.py " + home() + "/shim/*.h", &status);
  }();
  return text;
}
bool exists(const std::string& path) {
  struct stat st;
  return stat(path.c_str(), &st) == 0;
}
void write_file(const std::string& path, const std::string& text) {
  if (FILE* f = fopen(path.c_str(), "w")) {
    fwrite(text.data(), 1, text.size(), f);
    fclose(f);
  }
}
std::string hex(size_t h) {
  char id[32];
  snprintf(id, sizeof id, "%016zx", h);
  return id;
}
// Whether subnormals are flushed is asked for at run time, so compilers may assume neither.
// Contraction is off unless fast math asks for it; the vector units must fuse and narrow in
// hardware, or fma() and half become calls.
std::string compile_flags() {
  std::string flags = " -std=c++17 -fno-exceptions -fno-rtti -ffreestanding -nostdinc -I " +
                      home() +
                      "/shim -Xclang -ffloat16-excess-precision=none"
                      " -Xclang -fbfloat16-excess-precision=none"
                      " -fdenormal-fp-math=dynamic"
                      " -Xclang -cl-single-precision-constant -Wall -Werror=vla"
                      " -Wno-unknown-attributes -Wno-duplicate-decl-specifier"
                      " -Wno-user-defined-literals -Wno-reserved-user-defined-literal -Wno-unused"
                      " -Wno-unused-value -Wno-unknown-pragmas -Wno-psabi";
#if defined(__x86_64__)
  if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("f16c"))
    flags += " -mavx2 -mfma -mf16c";
#endif
  return flags;
}

// While a module is initialised it reads its function constants from here.
thread_local const ConstantSet* loading;

// The address range of the copy that was just loaded.
void find_range(Module& m, const char* file) {
  FILE* f = fopen("/proc/self/maps", "r");
  if (!f) return;
  char line[600];
  while (fgets(line, sizeof line, f)) {
    uintptr_t a, b;
    if (strstr(line, file) && sscanf(line, "%lx-%lx", &a, &b) == 2) {
      if (!m.low) m.low = a;
      m.high = b;
    }
  }
  fclose(f);
}
// Every set of function constants gets a copy of the module, since they are read as it loads.
std::shared_ptr<Module> load(const std::string& so, const ConstantSet* constants) {
  static std::atomic<int> n{0};
  std::string copy = so + "." + std::to_string(getpid()) + "." + std::to_string(n++) + ".so";
  int status;
  run_command("cp " + so + " " + copy, &status);
  loading = constants;
  void* handle = dlopen(copy.c_str(), RTLD_NOW | RTLD_LOCAL);
  loading = nullptr;
  auto m = std::make_shared<Module>();
  if (!handle) {
    report("load", "%s", dlerror());
    unlink(copy.c_str());
    return nullptr;
  }
  m->table = static_cast<const mslrt::Entry*>(dlsym(handle, "msl_table"));
  m->path = so;
  find_range(*m, copy.substr(copy.rfind('/') + 1).c_str());
  unlink(copy.c_str());
  return m;
}

std::vector<Argument> parse(const mslrt::Entry& e) {
  std::vector<Argument> all;
  for (const char* p = e.meta; *p;) {
    const char* end = strchr(p, ';');
    std::string one = end ? std::string(p, end) : std::string(p);
    std::string part[4];
    size_t at = 0;
    for (auto& s : part) {
      size_t colon = std::min(one.find(':', at), one.size());
      s = one.substr(at, colon - at);
      at = std::min(colon + 1, one.size());
    }
    Argument a;
    a.kind = part[0];
    a.index = atoi(part[1].c_str());
    a.write = part[2].find('w') != std::string::npos;
    a.optional = part[2].find('o') != std::string::npos;
    a.reference = part[2].find('&') != std::string::npos;
    a.constant_space = part[2].find('c') != std::string::npos;
    a.name = part[3];
    a.size = e.sizes[all.size()];
    a.align = e.aligns[all.size()];
    all.push_back(a);
    p = end ? end + 1 : p + one.size();
  }
  return all;
}

}  // namespace

std::string run_command(const std::string& command, int* status) {
  std::string out;
  FILE* p = popen(("{ " + command + "; } 2>&1").c_str(), "r");
  char b[4096];
  while (size_t n = fread(b, 1, sizeof b, p)) out.append(b, n);
  *status = pclose(p);
  return out;
}

std::string Program::identity() const {
  std::string all =
      source_ + (fast_ ? "F" : "-") + (fast_functions_ ? "F" : "-") + std::to_string(version_);
  for (auto& d : defines_) all += "\n-D" + d;
  return hex(std::hash<std::string>()(all));
}

// Text to C++; the strict pass, with real address spaces, is parsed only.
std::string Program::translate(const std::string& stem, std::string& error) const {
  int status;
  write_file(stem + ".metal", source_);
  std::string defines;
  for (auto& d : defines_) defines += " -D '" + d + "'";
  error = run_command("MSLC_CLANG=" + compiler() + " " + python() + " " + translator() +
                          "/mslc.py --metal-version " + std::to_string(version_) + defines +
                          " " + stem + ".metal -o " + stem + ".cpp --lint " + stem + ".lint.cpp",
                      &status);
  if (status) return "";
  error +=
      run_command(compiler() + compile_flags() + " -fsyntax-only " + stem + ".lint.cpp", &status);
  return status ? "" : stem + ".cpp";
}

std::string Program::build(bool check, std::string& error) {
  std::string key = hex(std::hash<std::string>()(identity() + compile_flags() + compiler() +
                                                 tools() + (check ? "check" : "speed")));
  std::string so = cache() + "/" + key + ".so";
  if (exists(so) && !getenv("MSLEMU_NOCACHE")) return so;
  ++counters().compiles;
  std::string stem = cache() + "/" + key + "." + std::to_string(getpid());
  std::string cpp = translate(stem, error);
  if (cpp.empty()) return "";
  std::string flags = check ? " -O1 -gline-tables-only -gdwarf-4 -fsanitize=thread"
                              " -fno-inline-functions"
                            : " -O2";
  flags += fast_ ? " -ffp-contract=fast" : " -ffp-contract=off";
  if (fast_functions_) flags += " -DMSLEMU_FAST_FUNCTIONS";
  int status;
  std::string text = run_command(compiler() + compile_flags() + flags + " -fPIC -shared " + cpp +
                                     " -o " + stem + ".so && mv " + stem + ".so " + so,
                                 &status);
  error += text;
  for (const char* left : {".metal", ".cpp", ".lint.cpp"}) unlink((stem + left).c_str());
  return status ? "" : so;
}

std::shared_ptr<Module> Program::module(bool check, const ConstantSet* constants,
                                        std::string& error) {
  std::lock_guard<std::mutex> lock(m_);
  if (!constants && plain_[check]) return plain_[check];
  std::string so = build(check, error);
  if (so.empty()) return nullptr;
  auto m = load(so, constants);
  if (!constants) plain_[check] = m;
  return m;
}

std::shared_ptr<Kernel> Kernel::make(std::shared_ptr<Program> program, const std::string& name,
                                     const ConstantSet* constants, std::string& error) {
  auto k = std::make_shared<Kernel>();
  k->name = name;
  k->program_ = std::move(program);
  if (constants) k->constants_ = std::make_unique<ConstantSet>(*constants);
  const Build& b = k->build(settings().check);
  if (!b.entry) {
    error = "no function '" + name + "' in this library";
    return nullptr;
  }
  k->arguments = parse(*b.entry);
  k->max_threads = b.entry->max_threads;
  return k;
}

const Kernel::Build& Kernel::build(bool check) {
  std::lock_guard<std::mutex> lock(m_);
  Build& b = builds_[check];
  if (b.module) return b;
  std::string error;
  b.module = program_->module(check, constants_.get(), error);
  if (!b.module) {
    report("compile", "kernel '%s': %s", name.c_str(), error.c_str());
    return b;
  }
  for (const mslrt::Entry* e = b.module->table; e->name; ++e)
    if (name == e->name) b.entry = e;
  return b;
}

std::string Kernel::identity() const {
  std::string all = program_->identity() + name;
  if (constants_)
    for (auto& [index, bytes] : *constants_)
      all += "|" + std::to_string(index) + "=" + std::string(bytes.begin(), bytes.end());
  return hex(std::hash<std::string>()(all));
}

}  // namespace emu

extern "C" bool mslemu_function_constant(unsigned index, void* out, unsigned bytes) {
  if (!emu::loading) return false;
  auto it = emu::loading->find(index);
  if (it == emu::loading->end()) return false;
  if (out) memcpy(out, it->second.data(), std::min<size_t>(bytes, it->second.size()));
  return true;
}

namespace {
// Modules find the emulator's functions among the global symbols, however this library was loaded;
// metal-cpp finds Metal's constants there.
const bool global = [] {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&emu::run_command), &info);
  return dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD) != nullptr;
}();
}  // namespace
