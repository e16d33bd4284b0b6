#include "runtime/plan_cache.h"

#include "exec/fork.h"

namespace accel {

class PlanCache::Turn {
 public:
  Turn(PlanCache& cache, const char* call) : cache_(cache) {
    check_fork();
    const std::thread::id me = std::this_thread::get_id();
    if (cache_.owner_.load() == me)
      throw graph_error({Diagnostic{
          ErrorKind::graph,
          "PlanCache",
          call,
          std::string("PlanCache: ") + call +
              " is called from a record or progress callback of this cache and must not be",
          {}}});
    cache_.mutex_.lock();
    cache_.owner_.store(me);
  }
  ~Turn() {
    cache_.owner_.store(std::thread::id());
    cache_.mutex_.unlock();
  }
  Turn(const Turn&) = delete;

 private:
  PlanCache& cache_;
};

PlanCache::PlanCache(RuntimePtr runtime, Index index)
    : runtime_(std::move(runtime)),
      index_(index ? std::move(index) : [](const Identity& i) { return i.hex(); }) {
  if (!runtime_)
    throw attr_error("PlanCache", "runtime", "PlanCache: runtime is missing and must be a Runtime");
}

PlanPtr PlanCache::compile(const Record& record, const CompileOptions& options) {
  const Turn turn(*this, "compile");
  if (closed_.load())
    throw bind_error("lifetime", "cache", "the plan cache is closed and must be open");
  Builder builder = runtime_->new_builder(options.label);
  record(builder);
  const Identity wanted = identity(builder, options);
  const std::string key = index_(wanted);
  if (const auto at = plans_.find(key); at != plans_.end())
    for (PlanPtr& plan : at->second) {
      if (!(plan->identity() == wanted)) continue;
      if (plan->closed()) plan = Plan::compile(builder, options);
      return plan;
    }
  PlanPtr plan = Plan::compile(builder, options);
  plans_[key].push_back(plan);
  size_.fetch_add(1);
  return plan;
}

size_t PlanCache::size() const {
  check_fork();
  return size_.load();
}

bool PlanCache::closed() const {
  check_fork();
  return closed_.load();
}

void PlanCache::close() {
  const Turn turn(*this, "close");
  if (closed_.exchange(true)) return;
  for (const auto& [key, plans] : plans_)
    for (const PlanPtr& plan : plans) plan->close();
  plans_.clear();
  size_.store(0);
}

}  // namespace accel
