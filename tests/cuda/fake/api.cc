// The driver's functions, with the types of the library that calls them.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "../../../cpp/backends/cuda/api.h"
#include "../../metal/emu/objects.h"
#include "state.h"

using namespace accel::cuda;  // NOLINT: the names of the interface
using fake::Exec;
using fake::fault;
using fake::find;
using fake::Function;
using fake::Graph;
using fake::GraphNode;
using fake::Lock;
using fake::Mark;
using fake::Module;
using fake::State;
using fake::state;
using fake::Stream;

namespace {

constexpr uint64_t kMemory = uint64_t(8) << 30;
thread_local int current = 0;  // contexts pushed on this thread

int number(const char* variable, int otherwise) {
  const char* text = getenv(variable);
  return text ? atoi(text) : otherwise;
}

bool kills(int code) {
  return (code >= 700 && code < 720 && code != 701) || code == 214 || code == 999 || code == 46;
}

enum Needs { kNothing, kContext };

// What a call gives before it does anything: a failure asked for, or what became of the context.
int enter(State& s, const char* name, Needs needs = kContext, bool frees = false) {
  if (const int code = fake::counted(s, name)) {
    if (kills(code)) s.sticky = code;
    return code;
  }
  if (!s.initialised && strcmp(name, "cuInit") != 0) {
    fault(s, std::string(name) + " before cuInit");
    return fake::kNotInitialized;
  }
  if (needs == kNothing) return 0;
  if (!current) {
    fault(s, std::string(name) + " on a thread without a context");
    return fake::kInvalidContext;
  }
  return frees ? 0 : s.sticky;
}

#define ENTER(name, ...) \
  State& s = state();    \
  Lock lock(s.m);        \
  if (const int failed = enter(s, #name, ##__VA_ARGS__)) return failed;
// Of what frees: it does so whatever it gives, where it finds its context.
#define FREE(name)                                    \
  State& s = state();                                 \
  Lock lock(s.m);                                     \
  const int result = enter(s, #name, kContext, true); \
  if (result == fake::kInvalidContext) return result;

template <class T>
bool known(State& s, const std::set<T*>& all, const void* object, const char* name) {
  if (all.count(static_cast<T*>(const_cast<void*>(object)))) return true;
  fault(s, std::string(name) + " of an object that does not live");
  return false;
}
#define KNOWN(all, object, name) \
  if (!known(s, s.all, object, #name)) return fake::kInvalidHandle;
template <class T, class U>
T* as(U* handle) {
  return reinterpret_cast<T*>(handle);
}

void free_objects(Lock& lock, State& s) {
  fake::wait_all(lock, s);
  const size_t n = s.memory.size() + s.pinned.size() + s.modules.size() + s.streams.size() +
                   s.marks.size() + s.graphs.size() + s.execs.size();
  if (n) fault(s, std::to_string(n) + " objects end with the context");
  for (auto& [address, buffer] : s.memory) emu::release(buffer);
  for (auto& [address, bytes] : s.pinned) free(reinterpret_cast<void*>(address));
  for (Module* module : s.modules) delete module;
  for (Mark* mark : s.marks) delete mark;
  for (Graph* graph : s.graphs) delete graph;
  for (Exec* exec : s.execs) delete exec;
  s.memory.clear();
  s.pinned.clear();
  s.modules.clear();
  s.marks.clear();
  s.graphs.clear();
  s.execs.clear();
  s.used = 0;
  const std::set<Stream*> streams = std::move(s.streams);
  s.streams.clear();
  for (Stream* stream : streams) fake::end(lock, stream);
  s.sticky = 0;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default"))) CUresult

// ---------------------------------------------------------------- devices

EXPORT cuInit(unsigned) {
  ENTER(cuInit, kNothing)
  s.initialised = true;
  return 0;
}
EXPORT cuDriverGetVersion(int* version) {
  ENTER(cuDriverGetVersion, kNothing)
  *version = number("FAKECUDA_DRIVER", 13000);
  return 0;
}
EXPORT cuGetErrorName(CUresult, const char** text) {
  *text = "CUDA_ERROR_OF_A_TEST";
  return 0;
}
EXPORT cuGetErrorString(CUresult, const char** text) {
  *text = "an error that a test asked for";
  return 0;
}
EXPORT cuDeviceGetCount(int* n) {
  ENTER(cuDeviceGetCount, kNothing)
  *n = number("FAKECUDA_DEVICES", 1);
  return 0;
}
EXPORT cuDeviceGet(CUdevice* device, int ordinal) {
  ENTER(cuDeviceGet, kNothing)
  *device = ordinal;
  return 0;
}
EXPORT cuDeviceGetName(char* name, int length, CUdevice) {
  ENTER(cuDeviceGetName, kNothing)
  strncpy(name, "Stand-in of a GPU", size_t(length));
  return 0;
}
EXPORT cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) {
  ENTER(cuDeviceGetUuid, kNothing)
  memset(uuid, 7 + device, sizeof *uuid);
  return 0;
}
EXPORT cuDeviceTotalMem_v2(size_t* bytes, CUdevice) {
  ENTER(cuDeviceTotalMem, kNothing)
  *bytes = kMemory;
  return 0;
}
EXPORT cuDeviceGetAttribute(int* value, int which, CUdevice) {
  ENTER(cuDeviceGetAttribute, kNothing)
  const int capability = number("FAKECUDA_CAPABILITY", 90);
  if (which == CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN) {
    *value = number("FAKECUDA_GROUP_BYTES", 0);
    return 0;
  }
  *value = which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR   ? capability / 10
           : which == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR ? capability % 10
                                                                   : 2;
  return 0;
}

// ---------------------------------------------------------------- contexts

EXPORT cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  ENTER(cuDevicePrimaryCtxRetain, kNothing)
  ++s.retained;
  *context = reinterpret_cast<CUcontext>(&s);
  return 0;
}
EXPORT cuDevicePrimaryCtxRelease_v2(CUdevice) {
  State& s = state();
  Lock lock(s.m);
  const int result = enter(s, "cuDevicePrimaryCtxRelease", kNothing);
  if (!s.retained) fault(s, "cuDevicePrimaryCtxRelease without a retain");
  else if (--s.retained == 0) free_objects(lock, s);
  return result;
}
EXPORT cuCtxPushCurrent_v2(CUcontext context) {
  ENTER(cuCtxPushCurrent, kNothing)
  if (!context || !s.retained) fault(s, "cuCtxPushCurrent of a context that nobody holds");
  ++current;
  return 0;
}
EXPORT cuCtxPopCurrent_v2(CUcontext*) {
  State& s = state();
  Lock lock(s.m);
  const int result = enter(s, "cuCtxPopCurrent", kNothing);
  if (!current) fault(s, "cuCtxPopCurrent without a push");
  else --current;
  return result;
}

// ---------------------------------------------------------------- memory

EXPORT cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER(cuMemGetInfo)
  *total = kMemory;
  *free = kMemory - s.used;
  return 0;
}
EXPORT cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
  ENTER(cuMemAlloc)
  if (!bytes) return fake::kInvalidValue;
  const size_t size = (bytes + 255) / 256 * 256;
  if (s.used + size > kMemory) return fake::kOutOfMemory;
  auto* buffer = new emu::Buffer(size, 0x100);
  memset(buffer->data, 0xA7, size);  // the driver clears nothing
  *address = uint64_t(buffer->data) + fake::kBias;
  s.memory[*address] = buffer;
  s.used += size;
  return 0;
}
EXPORT cuMemFree_v2(CUdeviceptr address) {
  FREE(cuMemFree)
  const auto at = s.memory.find(address);
  if (at == s.memory.end()) {
    fault(s, "cuMemFree of what is no allocation");
    return fake::kInvalidValue;
  }
  fake::wait_all(lock, s);
  s.used -= at->second->length;
  emu::release(at->second);
  s.memory.erase(at);
  return result ? result : s.sticky;
}
EXPORT cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  ENTER(cuMemHostAlloc)
  *memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  s.pinned[uintptr_t(*memory)] = bytes;
  return 0;
}
EXPORT cuMemFreeHost(void* memory) {
  FREE(cuMemFreeHost)
  if (!s.pinned.erase(uintptr_t(memory))) {
    fault(s, "cuMemFreeHost of what is no allocation");
    return fake::kInvalidValue;
  }
  free(memory);
  return result ? result : s.sticky;
}

namespace {
// A copy or a fill, once the stream comes to it: its memory must live then.
int copy(State& s, const char* name, CUstream handle, CUdeviceptr device, size_t bytes,
         const void* host, std::function<void(char*)> work, CUdeviceptr other = 0) {
  KNOWN(streams, handle, copy)
  const auto fits = [=](State& now) {
    return find(now, device, bytes) && (!other || find(now, other, bytes)) &&
           (!host || fake::is_pinned(now, host, bytes));
  };
  if (!fits(s)) {
    fault(s, std::string(name) + " outside of the memory that it names");
    return fake::kInvalidValue;
  }
  const auto run = [=, work = std::move(work)] {
    State& now = state();
    Lock lock(now.m);
    if (now.sticky) return;
    if (fits(now)) work(fake::host_of(device));
    else fault(now, std::string(name) + ": its memory was freed before the copy");
  };
  fake::enqueue(s, as<Stream>(handle), {run, false});
  return 0;
}
}  // namespace

EXPORT cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyHtoDAsync)
  return copy(s, "cuMemcpyHtoDAsync", stream, to, bytes, from,
              [=](char* at) { memcpy(at, from, bytes); });
}
EXPORT cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyDtoHAsync)
  return copy(s, "cuMemcpyDtoHAsync", stream, from, bytes, to,
              [=](char* at) { memcpy(to, at, bytes); });
}
EXPORT cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  ENTER(cuMemcpyDtoDAsync)
  return copy(
      s, "cuMemcpyDtoDAsync", stream, to, bytes, nullptr,
      [=](char* at) { memcpy(at, fake::host_of(from), bytes); }, from);
}
EXPORT cuMemsetD8Async(CUdeviceptr to, unsigned char byte, size_t bytes, CUstream stream) {
  ENTER(cuMemsetD8Async)
  return copy(s, "cuMemsetD8Async", stream, to, bytes, nullptr,
              [=](char* at) { memset(at, byte, bytes); });
}

// ---------------------------------------------------------------- modules

EXPORT cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned, int*, void**) {
  ENTER(cuModuleLoadDataEx)
  auto made = std::make_unique<Module>();
  const int capability = number("FAKECUDA_CAPABILITY", 90);
  if (const int code =
          fake::load_module(s, static_cast<const char*>(image), capability, made.get()))
    return code;
  *module = as<CUmod_st>(made.get());
  s.modules.insert(made.release());
  return 0;
}
EXPORT cuModuleUnload(CUmodule module) {
  FREE(cuModuleUnload)
  KNOWN(modules, module, cuModuleUnload)
  s.modules.erase(as<Module>(module));
  delete as<Module>(module);
  return result ? result : s.sticky;
}
EXPORT cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  ENTER(cuModuleGetFunction)
  KNOWN(modules, module, cuModuleGetFunction)
  Function* found = nullptr;
  const int code = fake::find_function(s, as<Module>(module), name, &found);
  *function = as<CUfunc_st>(found);
  return code;
}
EXPORT cuFuncGetAttribute(int* value, int, CUfunction function) {
  ENTER(cuFuncGetAttribute)
  *value = int(fake::most_threads(*as<Function>(function)));
  return 0;
}
EXPORT cuFuncSetAttribute(CUfunction function, int which, int value) {
  ENTER(cuFuncSetAttribute)
  if (which == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT) {
    as<Function>(function)->carveout = value;
    return 0;
  }
  if (which != CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
      value > number("FAKECUDA_GROUP_BYTES", 0))
    return fake::kInvalidValue;
  as<Function>(function)->most_shared = unsigned(value);
  return 0;
}
EXPORT cuOccupancyMaxActiveBlocksPerMultiprocessor(int* groups, CUfunction function, int,
                                                   size_t bytes) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor)
  if (bytes > as<Function>(function)->most_shared) return fake::kInvalidValue;
  if (bytes && as<Function>(function)->carveout != 100) return fake::kInvalidValue;
  *groups = int(number("FAKECUDA_GROUP_BYTES", 0) / (bytes + 1024));
  return 0;
}
EXPORT cuLaunchKernel(CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                      unsigned by, unsigned bz, unsigned shared, CUstream stream, void** params,
                      void**) {
  ENTER(cuLaunchKernel)
  KNOWN(streams, stream, cuLaunchKernel)
  const unsigned grid[] = {gx, gy, gz}, block[] = {bx, by, bz};
  fake::enqueue(s, as<Stream>(stream),
                {[launch = fake::launch_of(s, as<Function>(function), grid, block, shared,
                                           params)] { fake::run_launch(launch); },
                 true});
  return 0;
}

// ---------------------------------------------------------------- streams and events

EXPORT cuStreamCreate(CUstream* stream, unsigned flags) {
  ENTER(cuStreamCreate)
  if (flags != CU_STREAM_NON_BLOCKING) fault(s, "cuStreamCreate: waits for the null stream");
  auto* made = new Stream;
  s.streams.insert(made);
  fake::begin(made);
  *stream = as<CUstream_st>(made);
  return 0;
}
EXPORT cuStreamDestroy_v2(CUstream stream) {
  FREE(cuStreamDestroy)
  KNOWN(streams, stream, cuStreamDestroy)
  s.streams.erase(as<Stream>(stream));
  fake::end(lock, as<Stream>(stream));
  return result ? result : s.sticky;
}
EXPORT cuStreamSynchronize(CUstream stream) {
  ENTER(cuStreamSynchronize)
  KNOWN(streams, stream, cuStreamSynchronize)
  fake::wait_idle(lock, s, as<Stream>(stream));
  return s.sticky;
}
EXPORT cuEventCreate(CUevent* event, unsigned flags) {
  ENTER(cuEventCreate)
  auto* made = new Mark;
  made->timed = !(flags & CU_EVENT_DISABLE_TIMING);
  s.marks.insert(made);
  *event = as<CUevent_st>(made);
  return 0;
}
EXPORT cuEventDestroy_v2(CUevent event) {
  FREE(cuEventDestroy)
  KNOWN(marks, event, cuEventDestroy)
  s.marks.erase(as<Mark>(event));
  delete as<Mark>(event);
  return result ? result : s.sticky;
}
EXPORT cuEventRecord(CUevent event, CUstream stream) {
  ENTER(cuEventRecord)
  KNOWN(marks, event, cuEventRecord)
  KNOWN(streams, stream, cuEventRecord)
  auto* mark = as<Mark>(event);
  mark->pending = true;
  const uint64_t version = ++mark->version;
  const auto pass = [mark, version] {
    State& now = state();
    Lock inside(now.m);
    if (!now.marks.count(mark) || mark->version != version) return;
    mark->pending = false;
    mark->when = fake::now_ms();
  };
  fake::enqueue(s, as<Stream>(stream), {pass, false});
  return 0;
}
namespace {
int wait_for(Lock& lock, State& s, const Mark* mark) {
  s.changed.wait(lock, [&] { return s.sticky || !mark->pending; });
  return s.sticky;
}
int let_go(Lock& lock, State& s, const Mark* mark) {
  s.ends_at = 0;
  s.held = false;
  s.changed.notify_all();
  return wait_for(lock, s, mark);
}
}  // namespace

EXPORT cuEventQuery(CUevent event) {
  ENTER(cuEventQuery)
  KNOWN(marks, event, cuEventQuery)
  if (!as<Mark>(event)->pending) return 0;
  if (!s.ends_at || --s.ends_at) return fake::kNotReady;
  return let_go(lock, s, as<Mark>(event));
}
EXPORT cuEventSynchronize(CUevent event) {
  ENTER(cuEventSynchronize)
  KNOWN(marks, event, cuEventSynchronize)
  if (s.ends_at) return let_go(lock, s, as<Mark>(event));
  return wait_for(lock, s, as<Mark>(event));
}
EXPORT cuEventElapsedTime(float* ms, CUevent first, CUevent last) {
  ENTER(cuEventElapsedTime)
  const Mark &a = *as<Mark>(first), &b = *as<Mark>(last);
  if (!a.timed || !b.timed) {
    fault(s, "cuEventElapsedTime of events that keep no time");
    return fake::kInvalidHandle;
  }
  if (a.pending || b.pending) return fake::kNotReady;
  *ms = float(b.when - a.when);
  return 0;
}

// ---------------------------------------------------------------- graphs

EXPORT cuGraphCreate(CUgraph* graph, unsigned) {
  ENTER(cuGraphCreate)
  auto* made = new Graph;
  s.graphs.insert(made);
  *graph = as<CUgraph_st>(made);
  return 0;
}
EXPORT cuGraphDestroy(CUgraph graph) {
  FREE(cuGraphDestroy)
  KNOWN(graphs, graph, cuGraphDestroy)
  s.graphs.erase(as<Graph>(graph));
  delete as<Graph>(graph);
  return result ? result : s.sticky;
}

namespace {
GraphNode* add(CUgraph graph, const CUgraphNode* before, size_t n) {
  auto& nodes = as<Graph>(graph)->nodes;
  nodes.push_back(std::make_unique<GraphNode>());
  for (size_t i = 0; i < n; ++i) nodes.back()->before.push_back({as<GraphNode>(before[i])});
  return nodes.back().get();
}
fake::Launch launch_of(State& s, const CUDA_KERNEL_NODE_PARAMS_v2& p) {
  const unsigned grid[] = {p.gridDimX, p.gridDimY, p.gridDimZ};
  const unsigned block[] = {p.blockDimX, p.blockDimY, p.blockDimZ};
  return fake::launch_of(s, as<Function>(p.func), grid, block, p.sharedMemBytes, p.kernelParams);
}
}  // namespace

EXPORT cuGraphAddKernelNode_v2(CUgraphNode* node, CUgraph graph, const CUgraphNode* before,
                               size_t n, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  ENTER(cuGraphAddKernelNode)
  KNOWN(graphs, graph, cuGraphAddKernelNode)
  GraphNode* made = add(graph, before, n);
  made->launch = launch_of(s, *params);
  *node = as<CUgraphNode_st>(made);
  return 0;
}
EXPORT cuGraphAddEmptyNode(CUgraphNode* node, CUgraph graph, const CUgraphNode* before, size_t n) {
  ENTER(cuGraphAddEmptyNode)
  KNOWN(graphs, graph, cuGraphAddEmptyNode)
  GraphNode* made = add(graph, before, n);
  made->empty = true;
  *node = as<CUgraphNode_st>(made);
  return 0;
}
namespace {
bool holds(const Graph& graph, const GraphNode* node) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const auto& own) { return own.get() == node; });
}
// Why an edge cannot be, or nothing.
const char* wrong_with(const Graph& graph, const GraphNode* from, const GraphNode* to,
                       const CUgraphEdgeData& data) {
  static const unsigned char zeros[sizeof data.reserved] = {};
  if (!holds(graph, from) || !holds(graph, to) || from == to) return "its nodes";
  for (const auto& edge : to->before)
    if (edge.from == from) return "it is there";
  if (data.to_port || memcmp(data.reserved, zeros, sizeof zeros)) return "fields that are not zero";
  if (data.type == 0) return data.from_port ? "a port of another type" : nullptr;
  if (data.type != CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
      data.from_port != CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC)
    return "its type or port";
  return from->empty || to->empty ? "only kernels have programmatic edges" : nullptr;
}
}  // namespace

EXPORT cuGraphAddDependencies_v2(CUgraph graph, const CUgraphNode* from, const CUgraphNode* to,
                                 const CUgraphEdgeData* data, size_t n) {
  ENTER(cuGraphAddDependencies)
  KNOWN(graphs, graph, cuGraphAddDependencies)
  for (size_t i = 0; i < n; ++i) {
    GraphNode *first = as<GraphNode>(from[i]), *then = as<GraphNode>(to[i]);
    const CUgraphEdgeData edge = data ? data[i] : CUgraphEdgeData{};
    if (const char* wrong = wrong_with(*as<Graph>(graph), first, then, edge)) {
      fault(s, std::string("cuGraphAddDependencies: ") + wrong);
      return fake::kInvalidValue;
    }
    then->before.push_back({first, edge.type != 0});
  }
  return 0;
}
EXPORT cuGraphInstantiateWithFlags(CUgraphExec* exec, CUgraph graph, unsigned long long) {
  ENTER(cuGraphInstantiate)
  KNOWN(graphs, graph, cuGraphInstantiate)
  auto* made = new Exec;
  for (const auto& node : as<Graph>(graph)->nodes) {
    made->at[node.get()] = made->nodes.size();
    Exec::Node own{node->empty, node->launch, {}};
    for (const auto& edge : node->before)
      if (!edge.programmatic || fake::orders(s, edge.from->launch, node->launch))
        own.before.push_back(made->at.at(edge.from));
    made->nodes.push_back(std::move(own));
  }
  s.execs.insert(made);
  *exec = as<CUgraphExec_st>(made);
  return 0;
}
EXPORT cuGraphExecKernelNodeSetParams_v2(CUgraphExec exec, CUgraphNode node,
                                         const CUDA_KERNEL_NODE_PARAMS_v2* params) {
  ENTER(cuGraphExecKernelNodeSetParams)
  KNOWN(execs, exec, cuGraphExecKernelNodeSetParams)
  auto* e = as<Exec>(exec);
  e->nodes[e->at.at(as<GraphNode>(node))].launch = launch_of(s, *params);
  return 0;
}
EXPORT cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  ENTER(cuGraphLaunch)
  KNOWN(execs, exec, cuGraphLaunch)
  KNOWN(streams, stream, cuGraphLaunch)
  // What it holds now is what runs, whatever is changed behind it.
  fake::enqueue(
      s, as<Stream>(stream),
      {[copy = std::make_shared<Exec>(*as<Exec>(exec))] { fake::run_graph(*copy); }, true});
  return 0;
}
EXPORT cuGraphExecDestroy(CUgraphExec exec) {
  FREE(cuGraphExecDestroy)
  KNOWN(execs, exec, cuGraphExecDestroy)
  s.execs.erase(as<Exec>(exec));
  delete as<Exec>(exec);
  return result ? result : s.sticky;
}
