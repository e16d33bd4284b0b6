// What devices whose queues have workers have in common: checks of what is asked, children counted
// against close, the default queue.
#pragma once
#include "exec/worker_queue.h"

namespace accel {

class WorkerDevice : public Device {
 public:
  const DeviceInfo& info() const override { return info_; }
  BufferPtr new_buffer(DType dtype, int64_t count, const std::string& label) override;
  QueuePtr default_queue() override;
  QueuePtr new_queue(const std::string& label) override;
  TransientPoolPtr new_transient_pool(const std::string& label) override;
  std::unique_ptr<Program> compile(const PlanData& plan, const TransientPoolPtr& pool) override;
  void close() override;
  bool closed() const override { return closed_.load(std::memory_order_acquire); }
  void check_alive() const override;

 protected:
  WorkerDevice(DeviceInfo info, std::shared_ptr<WorkerHost> host);
  void check_open() const;
  // A buffer over memory of count elements, counted.
  BufferPtr finish(std::shared_ptr<void> memory, DType dtype, int64_t count,
                   const std::string& label);
  virtual std::unique_ptr<Program> make_program(const PlanData& plan,
                                                const TransientPoolPtr& pool) = 0;
  // The handle of a queue over a worker; by default a plain one. One default queue is alive at a
  // time, over the same worker each time.
  virtual QueuePtr make_queue(std::shared_ptr<Worker> worker, const std::string& label,
                              bool is_default);
  // What Buffer::native() gives for memory of allocate().
  virtual void* native_of(const std::shared_ptr<void>&) const { return nullptr; }

 private:
  const DeviceInfo info_;
  const std::shared_ptr<WorkerHost> host_;
  const std::shared_ptr<Worker> worker_;  // of the default queue
  mutable std::mutex mutex_;              // children against close
  std::weak_ptr<Queue> default_queue_;
  std::atomic<bool> closed_{false};
};

// "buffer x", "buffer".
std::string name_or(const std::string& label, const char* kind);
// Throws unless count elements make a buffer within the limit; compared in elements, so that
// nothing overflows.
void check_count(const char* what, DType dtype, int64_t count, int64_t limit);
// Throws attr_error for the options that every device has: a byte or -1, 0 or a submission.
void check_debug_options(const char* call, int debug_fill, int64_t lose_at);

}  // namespace accel
