// The state of the stand-in: objects of the driver, streams that run, failures to come.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace emu {
struct Buffer;
class Kernel;
}  // namespace emu

namespace fake {

// Addresses of the device are those of the host plus this, so that the host cannot read through
// one by mistake.
constexpr uint64_t kBias = uint64_t(1) << 60;

enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kInvalidPtx = 218,
  kInvalidContext = 201,
  kInvalidHandle = 400,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
};

struct Param {
  bool by_value = false;
  unsigned bytes = 8;
  unsigned index = 0;  // of the buffer in the shader
};
// How a kernel's text waits for the grids in front of it (griddepcontrol.wait).
enum class Waits {
  kNever,
  kLater,  // something stands in front of the wait
  kFirst,
};
struct Entry {
  std::vector<Param> params;  // as the PTX declares them
  Waits waits = Waits::kNever;
};
struct Module {
  std::map<std::string, Entry> entries;
};
struct Function {
  std::string name;
  std::vector<Param> params;
  Waits waits = Waits::kNever;
  std::shared_ptr<emu::Kernel> kernel;  // null: nothing here can run it
  unsigned most_shared = 48 << 10;      // bytes that a launch may give a group
  int carveout = -1;                    // percent of the memory of a multiprocessor, or its choice
};
struct Launch {
  const Function* function = nullptr;
  unsigned grid[3] = {}, block[3] = {}, shared = 0;
  std::vector<std::vector<char>> values;  // by parameter
};
// An edge from a node. A programmatic one orders nothing by itself: the kernel behind it may begin
// with the one in front, and what it waits for is over at its wait.
template <class Node>
struct Edge {
  Node from;
  bool programmatic = false;
};
struct GraphNode {
  bool empty = false;
  Launch launch;
  std::vector<Edge<GraphNode*>> before;
};
struct Graph {
  std::vector<std::unique_ptr<GraphNode>> nodes;
};
struct Exec {
  struct Node {
    bool empty;
    Launch launch;
    std::vector<size_t> before;  // by edges that order
  };
  std::vector<Node> nodes;
  std::map<const GraphNode*, size_t> at;
};

struct Mark {
  bool timed = false, pending = false;
  uint64_t version = 0;
  double when = 0;
};
struct Operation {
  std::function<void()> run;
  bool launch = false;  // which a test may hold back
};
struct Stream {
  std::deque<Operation> queued;
  bool running = false, stop = false;
  std::thread thread;
};

// Everything that the interface made and did not free. One lock for all of it.
struct State {
  std::mutex m;
  std::condition_variable changed;
  bool initialised = false;
  int retained = 0;                         // of the primary context
  int sticky = 0;                           // what killed it
  std::map<uint64_t, emu::Buffer*> memory;  // by address of the device
  uint64_t used = 0;
  std::map<uintptr_t, size_t> pinned;
  std::set<Module*> modules;
  std::set<Function*> functions;
  std::set<Stream*> streams;
  std::set<Mark*> marks;
  std::set<Graph*> graphs;
  std::set<Exec*> execs;

  struct Failure {
    std::string function;
    unsigned nth;
    int code;
    bool always;
  };
  std::vector<Failure> failures;
  bool held = false, forgets_waits = false;
  unsigned ends_at = 0;  // calls of cuEventQuery until launches are let go
  unsigned order = 1;
  std::map<std::string, long> calls;
  std::string ran, faults, failed, module;
  long n_faults = 0;
};
State& state();
using Lock = std::unique_lock<std::mutex>;

// With the lock. A line of misuse.
void fault(State& s, const std::string& text);
// Whether this call, or launch, is to fail: its code, or 0. Counts it.
int counted(State& s, const std::string& function);
// The allocation that holds [address, address + bytes), or null.
emu::Buffer* find(State& s, uint64_t address, size_t bytes);
bool is_pinned(State& s, const void* host, size_t bytes);
char* host_of(uint64_t address);

void begin(Stream* stream);
void enqueue(State& s, Stream* stream, Operation operation);
// Gives the lock away while it waits.
void wait_idle(Lock& lock, State& s, const Stream* stream);
void wait_all(Lock& lock, State& s);
void end(Lock& lock, Stream* stream);
double now_ms();

// kernels.cc
int load_module(State& s, const char* ptx, int capability, Module* out);
int find_function(State& s, Module* module, const char* name, Function** out);
unsigned most_threads(const Function& f);
Launch launch_of(State& s, const Function* f, const unsigned* grid, const unsigned* block,
                 unsigned shared, void** params);
// Whether a programmatic edge makes `then` see the end of `first` and of all that is before it.
bool orders(State& s, const Launch& first, const Launch& then);
// On a stream's thread, without the lock. What is wrong kills the context.
void run_launch(const Launch& launch);
void run_graph(const Exec& exec);

}  // namespace fake
