// One block of memory that the transients of several graphs share (CONTRACT E9). Its size is the
// most that one of them needs; it grows while a graph is compiled and never shrinks. Two of its
// graphs never execute at once: a program claims the pool where its execution starts.
// Safe to share between threads.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/error.h"

namespace accel {

class Device;

class TransientPool {
 public:
  // Zeroed memory of the device for `what`; throws capacity errors.
  using Allocate = std::function<std::shared_ptr<void>(int64_t bytes, const std::string& what)>;
  // live: the device's count of open pools, which this one raises while it is open.
  TransientPool(std::shared_ptr<Device> device, std::shared_ptr<std::atomic<int64_t>> live,
                const std::string& label, Allocate allocate);
  ~TransientPool();
  TransientPool(const TransientPool&) = delete;

  const std::shared_ptr<Device>& device() const { return device_; }
  const std::string& label() const { return label_; }
  std::string text() const;                   // "pool decode" for messages
  int64_t serial() const { return serial_; }  // from 1, unlike any other pool of this process
  int64_t bytes() const;
  int64_t graphs() const;  // open graph instances that use it
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Raises lifetime with the number while graphs are open. Closing again does nothing.
  void close();

  // ---------------------------------------------------------------- by the library
  // Before a compile: raises lifetime when closed, in_flight while one of its graphs executes.
  void check_idle() const;
  // Counts a graph and grows to its bytes; raises as check_idle where that is needed, capacity
  // errors for the memory, and changes nothing then. A block that was handed out stays valid.
  void join(int64_t bytes);
  void leave() { graphs_.fetch_sub(1, std::memory_order_acq_rel); }
  std::shared_ptr<void> block() const;

  // Taken where execution starts, given back where it ends. A null pool is always free. Executions
  // that one `owner` keeps in order may overlap here: the queue of a GPU; null: none may.
  class Claim {
   public:
    explicit Claim(std::shared_ptr<TransientPool> pool, const void* owner = nullptr);
    ~Claim();
    Claim(const Claim&) = delete;
    const std::optional<Error>& refused() const { return refused_; }

   private:
    const std::shared_ptr<TransientPool> pool_;
    std::optional<Error> refused_;
  };

 private:
  Error closed_error() const;
  Error busy_error(const char* must) const;

  const std::shared_ptr<Device> device_;
  const std::shared_ptr<std::atomic<int64_t>> live_;
  const std::string label_;
  const Allocate allocate_;
  const int64_t serial_;
  mutable std::mutex mutex_;  // block, bytes, executing
  std::shared_ptr<void> block_;
  int64_t bytes_ = 0;
  int executing_ = 0;
  const void* owner_ = nullptr;
  std::atomic<int64_t> graphs_{0};
  std::atomic<bool> closed_{false};
};
using TransientPoolPtr = std::shared_ptr<TransientPool>;

}  // namespace accel
