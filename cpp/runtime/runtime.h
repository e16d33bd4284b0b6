// Puts the layers together: Runtime, compile, Plan, Bindings. With graph/builder.h this is the C++
// public API.
#pragma once
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "exec/device.h"
#include "graph/builder.h"
#include "graph/sampling.h"
#include "plan/plan.h"
#include "runtime/identity.h"

namespace accel {

class Plan;
class Runtime;
using PlanPtr = std::shared_ptr<Plan>;
using RuntimePtr = std::shared_ptr<Runtime>;

struct CompileOptions {
  std::string label;
  Progress progress;
  int64_t max_in_flight = 1;  // submissions at a time, each in a graph instance of its own
  TransientPoolPtr pool;      // lends the transients; null: the plan has its own
  bool fuse = true;     // steps may run together, and on pieces of one another; no bit changes
  bool pack = false;    // kernels may name a layout for weights; Plan::pack makes such buffers
  bool naive = false;   // tests: no reuse of memory, a barrier before every step
  bool verify = false;  // tests: run each pass's verifier
};

struct Counters {
  int64_t built = 0, planned = 0, pipelines = 0;
};

// By compile and identity. The runtime that made the builder; attr_error without one.
RuntimePtr runtime_of(const Builder& builder, const char* call);
// Throws attr_error for max_in_flight below 1, foreign for another device's pool, lifetime for a
// closed one.
void check_compile_options(const char* call, const CompileOptions& options,
                           const DevicePtr& device);

class Runtime : public std::enable_shared_from_this<Runtime> {
 public:
  static RuntimePtr create(DevicePtr device);
  ~Runtime();
  const DevicePtr& device() const;
  Builder new_builder(const std::string& label = "");
  Counters counters() const;
  // Raises lifetime with the number while plans are open.
  void close();
  bool closed() const;
  struct Impl;

 private:
  friend class Plan;
  Runtime() = default;
  std::shared_ptr<Impl> p_;
};

using BindingMap = std::map<std::string, BufferView>;
using ScalarMap = std::map<std::string, ScalarValue>;

// A prepared set of bindings of one plan. Belongs to one thread; a submission takes the values that
// stand then (the table is copied on write while a submission holds it).
class Bindings {
 public:
  void set(const std::string& name,
           const BufferView& value);  // throws bind_error, changes nothing then
  void set_scalar(const std::string& name, ScalarValue value);
  void update(const BindingMap& buffers, const ScalarMap& scalars);  // all or nothing
  const PlanPtr& plan() const;
  struct Impl;

 private:
  friend class Plan;
  std::shared_ptr<Impl> p_;
};

// Weights in the layouts that a plan's ports name.
struct Packed {
  BindingMap buffers;  // by port; a view that stood in the port's layout is kept
  int64_t bytes = 0;   // of the buffers that were made
  double seconds = 0;
};

class Plan : public std::enable_shared_from_this<Plan> {
 public:
  // Throws graph, unsupported, capacity and bind (closed runtime) errors; a failed compile counts
  // no plan.
  static PlanPtr compile(const Builder& builder, const CompileOptions& options = {});
  // The same for a plan already made, as tests and benchmarks do; the runtime counts it alike.
  static PlanPtr compile_data(const RuntimePtr& runtime, PlanData data,
                              const CompileOptions& options = {});
  ~Plan();

  // Never throws for what a caller did: the fence carries the error and nothing has changed.
  FencePtr submit(const Bindings& bound, QueuePtr queue = nullptr,
                  std::vector<FencePtr> after = {});
  FencePtr submit(const BindingMap& buffers, const ScalarMap& scalars, QueuePtr queue = nullptr,
                  std::vector<FencePtr> after = {});
  std::shared_ptr<Bindings> bind(const BindingMap& buffers, const ScalarMap& scalars = {});
  // Throws bind_error with every problem of the given buffers, their layouts aside.
  Packed pack(const BindingMap& buffers);

  const std::string& label() const;
  const Identity& identity() const;
  GraphMemory memory() const;  // of one graph instance
  std::vector<PortDesc> ports() const;
  std::vector<ScalarDesc> scalars() const;
  std::vector<Selection> selections() const;
  std::string explain() const;
  std::string to_dot() const;
  // Writes where each transient lies and when, as path's ending says; attr_error for another one.
  void memory_map(const std::string& path) const;
  // Times submissions made from now on, command by command; attr_error while that is done already.
  void begin_trace();
  // Waits for them and gives Chrome trace JSON; attr_error when nothing is traced. `poll` as in
  // Fence::wait.
  std::string end_trace(const std::function<void()>& poll = {});
  void drop_trace();  // ends it without waiting or a result; without one: nothing
  const PlanData& data() const;
  RuntimePtr runtime() const;
  void close();  // waits for what is in flight, then frees; again: nothing
  bool closed() const;
  struct Impl;

 private:
  friend class Bindings;
  Plan() = default;
  std::shared_ptr<Impl> p_;
};

}  // namespace accel
