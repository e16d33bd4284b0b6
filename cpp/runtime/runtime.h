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

namespace accel {

class Plan;
class Runtime;
using PlanPtr = std::shared_ptr<Plan>;
using RuntimePtr = std::shared_ptr<Runtime>;

struct CompileOptions {
  std::string label;
  Progress progress;
  bool naive = false;   // tests: no reuse of memory, a barrier before every step
  bool verify = false;  // tests: run each pass's verifier
};

struct Counters {
  int64_t built = 0, planned = 0, pipelines = 0;
};

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

class Plan : public std::enable_shared_from_this<Plan> {
 public:
  // Throws graph, unsupported, capacity and bind (closed runtime) errors; a failed compile counts
  // no plan.
  static PlanPtr compile(const Builder& builder, const CompileOptions& options = {});
  // The same for a plan already made, as tests and benchmarks do; the runtime counts it alike.
  static PlanPtr compile_data(const RuntimePtr& runtime, PlanData data);
  ~Plan();

  // Never throws for what a caller did: the fence carries the error and nothing has changed.
  FencePtr submit(const Bindings& bound, QueuePtr queue = nullptr,
                  std::vector<FencePtr> after = {});
  FencePtr submit(const BindingMap& buffers, const ScalarMap& scalars, QueuePtr queue = nullptr,
                  std::vector<FencePtr> after = {});
  std::shared_ptr<Bindings> bind(const BindingMap& buffers, const ScalarMap& scalars = {});

  const std::string& label() const;
  GraphMemory memory() const;
  std::vector<PortDesc> ports() const;
  std::vector<ScalarDesc> scalars() const;
  std::vector<Selection> selections() const;
  std::string explain() const;
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
