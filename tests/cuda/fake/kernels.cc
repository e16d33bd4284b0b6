// Kernels: the PTX says which there are and what their parameters are, the emulator of Metal runs
// the shader of the same name on memory of the host. That the two agree is checked here.
#include <algorithm>
#include <cstring>
#include <random>
#include <regex>
#include <sstream>

#include "../../metal/emu/dispatch.h"
#include "../../metal/emu/order.h"
#include "../../metal/emu/settings.h"
#include "state.h"

namespace fake {
namespace {

namespace built {
struct Shader {
  const char *file, *text;
};
struct ShaderFunction {
  const char* name;
  int file;
};
#include "shaders.inc"
}  // namespace built

constexpr unsigned kParams = 27;

std::shared_ptr<emu::Program> program_of(int file) {
  static std::map<int, std::shared_ptr<emu::Program>> made;
  auto& program = made[file];
  if (!program)
    program = std::make_shared<emu::Program>(built::kShaders[file].text, false, false, 310,
                                             std::vector<std::string>());
  return program;
}

std::shared_ptr<emu::Kernel> kernel_of(const std::string& name, std::string& error) {
  for (const auto& f : built::kFunctions) {
    if (name != f.name) continue;
    auto kernel = emu::Kernel::make(program_of(f.file), name, nullptr, error);
    // Metal's constant memory begins at multiples of 256; here it is memory like any other.
    if (kernel)
      for (emu::Argument& a : kernel->arguments) a.constant_space = false;
    return kernel;
  }
  return nullptr;  // of the GPU alone
}

// The buffers that the shader declares, in the order of their indices.
std::vector<Param> params_of(const emu::Kernel& kernel) {
  std::vector<Param> params;
  for (const emu::Argument& a : kernel.arguments) {
    if (a.kind != "buffer") continue;
    Param p;
    p.index = a.index;
    p.by_value = a.index == kParams;
    p.bytes = p.by_value ? a.size : 8;
    params.push_back(p);
  }
  std::sort(params.begin(), params.end(),
            [](const Param& a, const Param& b) { return a.index < b.index; });
  return params;
}

// Whether the dispatch may run; what is missing is left out as on the device.
bool bind(State& s, const Launch& launch, emu::Dispatch& d) {
  const Function& f = *launch.function;
  for (size_t i = 0; i < f.params.size(); ++i) {
    emu::Bound& bound = d.bound[f.params[i].index];
    if (f.params[i].by_value) {
      bound.bytes = std::make_shared<std::vector<char>>(launch.values[i]);
      continue;
    }
    uint64_t address = 0;
    memcpy(&address, launch.values[i].data(), 8);
    bound.buffer = find(s, address, 1);
    if (!bound.buffer) {
      fault(s, "kernel " + f.name + ": the address of buffer " + std::to_string(f.params[i].index) +
                   " is of no memory of the device");
      return false;
    }
    bound.offset = size_t(host_of(address) - bound.buffer->data);
  }
  return true;
}

emu::Size3 size_of(const unsigned* v) {
  return {v[0], v[1], v[2]};
}

std::atomic<unsigned> next_id{1};

void run(const Launch& launch, const emu::Node& node) {
  State& s = state();
  const Function& f = *launch.function;
  emu::Dispatch d;
  emu::Pipeline pipeline;
  {
    Lock lock(s.m);
    if (s.sticky) return;
    if (const int code = counted(s, "kernel")) {
      s.sticky = code;
      return;
    }
    s.ran += f.name;
    if (launch.shared) {
      s.ran += " " + std::to_string(launch.grid[0]);
      if (launch.grid[1] > 1) s.ran += "x" + std::to_string(launch.grid[1]);
      s.ran += " " + std::to_string(launch.shared);
    }
    s.ran += "\n";
    if (!f.kernel) return;
    pipeline.kernel = f.kernel;
    pipeline.max_threads = f.kernel->max_threads;
    d.pipeline = &pipeline;
    d.groups = size_of(launch.grid);
    d.threads = size_of(launch.block);
    d.grid = {d.groups.w * d.threads.w, d.groups.h * d.threads.h, d.groups.d * d.threads.d};
    std::string wrong;
    if (!bind(s, launch, d)) wrong = "its addresses";
    else wrong = emu::misuse(d);
    if (!wrong.empty()) {
      fault(s, "kernel " + f.name + ": " + wrong);
      s.sticky = kIllegalAddress;
      return;
    }
  }
  emu::run_dispatch(d, node);
}

}  // namespace

// Of the text from an entry's name on. What may stand in front of the first instruction are
// declarations, and what only lets the next kernel begin.
static Waits waits_of(const std::string& text) {
  if (text.find("\ngriddepcontrol.wait;\n") == std::string::npos) return Waits::kNever;
  std::istringstream lines(text.substr(text.find("\n{\n") + 3));
  for (std::string line; std::getline(lines, line);) {
    if (line == "griddepcontrol.wait;") return Waits::kFirst;
    if (line[0] != '.' && line != "griddepcontrol.launch_dependents;") break;
  }
  return Waits::kLater;
}

// What the compiler of the driver, or a reader of the manual, would not take.
static std::string wrong_with(const std::string& text, int capability) {
  if (text.find("griddepcontrol.") == std::string::npos) return "";
  static const std::regex head(R"(\.version (\d+)\.(\d+)\n\.target sm_(\d+)\n)");
  std::smatch found;
  if (!std::regex_search(text, found, head)) return "a module without a head";
  if (10 * std::stoi(found[1]) + std::stoi(found[2]) < 78 || std::stoi(found[3]) < 90)
    return "griddepcontrol is of version 7.8 and sm_90";
  if (std::stoi(found[3]) > capability) return "a module for a later GPU";
  if (text.find("ld.global.nc") != std::string::npos)
    return "a read of memory as constant that an earlier kernel may still write";
  return "";
}

// One entry a kernel, each with its list of parameters.
int load_module(State& s, const char* ptx, int capability, Module* out) {
  static const std::regex entry(R"(\.entry\s+(\w+)\s*\(([^)]*)\))");
  static const std::regex param(
      R"(\.param\s+(?:\.align\s+\d+\s+)?\.(u64|b8)[^\[,]*(?:\[(\d+)\])?)");
  const std::string text = s.module = ptx;
  if (const std::string wrong = wrong_with(text, capability); !wrong.empty()) {
    fault(s, wrong);
    return kInvalidPtx;
  }
  for (std::sregex_iterator i(text.begin(), text.end(), entry), none; i != none; ++i) {
    auto& [params, waits] = out->entries[(*i)[1]];
    if (!s.forgets_waits) waits = waits_of(text.substr(size_t(i->position())));
    const std::string list = (*i)[2];
    for (std::sregex_iterator p(list.begin(), list.end(), param); p != none; ++p) {
      Param made;
      made.by_value = (*p)[1] == "b8";
      made.bytes = made.by_value ? unsigned(std::stoul((*p)[2])) : 8;
      params.push_back(made);
    }
  }
  if (out->entries.empty()) {
    fault(s, "a module without an entry");
    return kInvalidPtx;
  }
  return kSuccess;
}

int find_function(State& s, Module* module, const char* name, Function** out) {
  const auto at = module->entries.find(name);
  if (at == module->entries.end()) return kNotFound;
  auto f = std::make_unique<Function>();
  f->name = name;
  f->params = at->second.params;
  f->waits = at->second.waits;
  std::string error;
  f->kernel = kernel_of(name, error);
  if (!error.empty()) {
    fault(s, "kernel " + f->name + ": " + error);
    return kInvalidPtx;
  }
  if (f->kernel) {
    const std::vector<Param> own = params_of(*f->kernel);
    const auto equal = [](const Param& a, const Param& b) {
      return a.by_value == b.by_value && a.bytes == b.bytes;
    };
    if (!std::equal(own.begin(), own.end(), f->params.begin(), f->params.end(), equal)) {
      fault(s, "kernel " + f->name + ": its PTX has other parameters than the shader");
      return kInvalidPtx;
    }
    f->params = own;
  }
  *out = f.get();
  s.functions.insert(f.release());
  return kSuccess;
}

unsigned most_threads(const Function& f) {
  return f.kernel ? f.kernel->max_threads : 1024;
}

Launch launch_of(State& s, const Function* f, const unsigned* grid, const unsigned* block,
                 unsigned shared, void** params) {
  Launch launch;
  launch.function = f;
  launch.shared = shared;
  if (shared > f->most_shared)
    fault(s, "kernel " + f->name + ": " + std::to_string(shared) + " bytes of a group, and " +
                 std::to_string(f->most_shared) + " are allowed");
  std::copy(grid, grid + 3, launch.grid);
  std::copy(block, block + 3, launch.block);
  for (size_t i = 0; i < f->params.size(); ++i) {
    const char* from = static_cast<const char*>(params[i]);
    launch.values.emplace_back(from, from + f->params[i].bytes);
  }
  return launch;
}

// A kernel that does not wait may run before the one in front, and one that ends without having
// waited says nothing of those before it. What the emulator runs it runs whole, so it must wait
// before all else.
bool orders(State& s, const Launch& first, const Launch& then) {
  for (const Launch* launch : {&first, &then}) {
    const Function& f = *launch->function;
    if (f.waits == Waits::kNever)
      fault(s, "kernel " + f.name + " has a programmatic edge and does not wait");
    else if (f.waits == Waits::kLater && f.kernel)
      fault(s, "kernel " + f.name + " has a programmatic edge and begins before it waits");
  }
  return then.function->waits != Waits::kNever;
}

void run_launch(const Launch& launch) {
  emu::Node node;
  node.id = next_id++;
  node.before.add_under(node.id);
  run(launch, node);
}

// In an order that the edges allow. What no edge orders is unordered for check mode too; what was
// launched before is over.
void run_graph(const Exec& exec) {
  const size_t n = exec.nodes.size();
  const unsigned first = next_id.fetch_add(unsigned(n) + 1);
  std::vector<std::unique_ptr<emu::Node>> nodes;
  std::vector<size_t> missing(n);
  std::vector<std::vector<size_t>> next(n);
  std::set<size_t> ready;
  for (size_t i = 0; i < n; ++i) {
    nodes.push_back(std::make_unique<emu::Node>());
    nodes[i]->id = first + unsigned(i);
    nodes[i]->before.add_under(first);
    missing[i] = exec.nodes[i].before.size();
    for (const size_t p : exec.nodes[i].before) next[p].push_back(i);
    if (!missing[i]) ready.insert(i);
  }
  unsigned order;
  {
    Lock lock(state().m);
    order = state().order;
  }
  std::mt19937 random(order * 7919 + first);
  while (!ready.empty()) {
    auto at = order == 2 ? std::prev(ready.end()) : ready.begin();
    if (order > 2) std::advance(at, long(random() % ready.size()));
    const size_t i = *at;
    ready.erase(at);
    for (const size_t p : exec.nodes[i].before) {
      nodes[i]->before.add_all(nodes[p]->before);
      nodes[i]->before.add(nodes[p]->id);
    }
    if (!exec.nodes[i].empty) run(exec.nodes[i].launch, *nodes[i]);
    for (const size_t j : next[i])
      if (--missing[j] == 0) ready.insert(j);
  }
}

}  // namespace fake
