// The shape of a device: memory, queues, fences, and programs made from plans. Backends implement
// the *Impl side.
#pragma once
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "exec/transient_pool.h"
#include "plan/plan.h"

namespace accel {

class Device;
class Queue;
using DevicePtr = std::shared_ptr<Device>;
using QueuePtr = std::shared_ptr<Queue>;

struct DeviceInfo {
  std::array<uint8_t, 16> id{};  // opaque token, stable across processes
  std::string backend, name, vendor;
  bool software = false;
  std::string level;  // numerical level, "fma" or "base" on the CPU
  std::string isa;
  int threads = 0;
  std::vector<std::string> capabilities;
  std::vector<std::pair<std::string, int64_t>> limits;
};

struct ProbeNote {
  std::string backend, stage, error;
};
struct Enumeration {
  std::vector<DeviceInfo> devices;
  std::vector<ProbeNote> notes;
};

// What submissions hold: one flag for all the buffers of one table of bindings, so that submitting
// costs the same for one buffer and for a thousand.
struct Hold {
  std::atomic<int> in_flight{0};
  // The thread that maps the buffers for its own code, which would wait for itself; none: a
  // submission.
  std::thread::id mapped_by{};
};

// "buffer x", "buffer without a label".
std::string labelled(const char* kind, const std::string& label);

// Memory of one device, or caller's memory used in place. Closing one in use raises `lifetime`.
class Buffer : public std::enable_shared_from_this<Buffer> {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  virtual ~Buffer();
  DType dtype = DType::F32;
  int64_t count = 0;
  std::string label, layout = "plain";
  bool writable = true;
  bool copied = false;  // from_dlpack and device.buffer: the data was copied
  int64_t bytes() const { return count * size_of(dtype); }
  const DevicePtr& device() const { return device_; }
  bool closed() const { return closed_.load(std::memory_order_acquire); }
  // Address of the bytes as the device's kernels see it; null once closed. Of memory of a device
  // that the host does not see it is a number, for comparing and for handing over.
  void* address() const { return address_.load(std::memory_order_acquire); }
  // The same where the host sees the bytes, as the CPU's always; else null.
  void* host() const { return host_visible_ ? address() : nullptr; }
  // Owns the bytes: whoever keeps it (a host array without a copy) keeps them readable after
  // close().
  std::shared_ptr<void> memory() const;
  // The backend's object of the bytes, valid while they are held: an MTLBuffer on Metal, null on
  // the CPU.
  void* native() const { return native_; }
  void close();
  // Submissions in flight that hold this buffer.
  int in_use() const;
  // Waits until none does; false if `seconds` run out first. `poll` as in Fence::wait. Raises
  // lifetime on a thread that maps the buffer.
  bool wait_idle(double seconds = -1, const std::function<void()>& poll = {});

  // By the library: submissions through `hold` count for these buffers, from now on or no longer.
  static void add_hold(const std::vector<std::shared_ptr<Buffer>>& buffers,
                       const std::shared_ptr<Hold>& hold);
  void remove_hold(const std::shared_ptr<Hold>& hold);

 protected:
  DevicePtr device_;
  std::atomic<void*> address_{nullptr};
  bool host_visible_ = true;
  std::shared_ptr<void> memory_;
  void* native_ = nullptr;
  std::atomic<bool> closed_{false};
  std::shared_ptr<std::atomic<int64_t>> live_;  // the device's count of open buffers
  std::vector<std::weak_ptr<Hold>> holds_;
};
using BufferPtr = std::shared_ptr<Buffer>;

// Goes up whenever a buffer closes: a table of bindings found open under one value needs no look at
// its buffers while the value stands. lifetime_lock() orders that look against a close in progress.
std::atomic<uint64_t>& close_generation();
std::unique_lock<std::mutex> lifetime_lock();

// A plain value, checked at each use: buffer open, range inside. offset and count in elements of
// dtype.
struct BufferView {
  BufferPtr buffer;
  DType dtype = DType::F32;
  int64_t offset = 0;
  int64_t count = 0;
};

struct FenceStats {
  int64_t queued_ns = 0, started_ns = 0, finished_ns = 0;
};

// Signalled once. wait() may be called any number of times, from any thread; it throws the
// submission's error.
class Fence {
 public:
  static std::shared_ptr<Fence> failed(Error error);
  bool done() const;
  // False if `seconds` run out first. Negative: no limit. `poll` is called at least every 50 ms and
  // may throw.
  bool wait(double seconds = -1, const std::function<void()>& poll = {});
  std::optional<Error> error() const;  // of a fence that is done
  bool observed() const;               // wait() has delivered the error
  FenceStats stats() const;
  // C++ completion handle, called on a library thread, or at once on the caller's when the fence is
  // done already. It must not throw.
  void on_done(std::function<void()> callback);

  // By the library: signal once; wait without delivering the error; how long wait() spins before it
  // sleeps; what the queues of one device share, null for a fence that failed before any queue.
  void signal(std::optional<Error> error, const FenceStats& stats = {});
  bool wait_quiet(double seconds = -1, const std::function<void()>& poll = {}) const;
  void set_spin(int64_t spin_ns);
  // Hints, as those of Event: wait() sleeps at once, and spins again.
  void far();
  void near();
  int asleep() const;  // in wait()
  void set_origin(const void* host);
  const void* origin() const;

  Fence();
  ~Fence();

 private:
  struct Shared;
  std::shared_ptr<Shared> p_;
};
using FencePtr = std::shared_ptr<Fence>;

// Told once how a submission ended, on any thread.
using Done = std::function<void(std::optional<Error>)>;

// Lends itself to work that goes on after it has returned, as a GPU's does.
class Later {
 public:
  // At most once: the submission ends when the result is called, which may be before the work
  // returns.
  virtual Done take() = 0;
  // Behind take(), where the end is expected to be far off: those who wait for it, or for what is
  // submitted behind it, sleep from now on instead of spinning. The result, called on any thread,
  // says that the end is near, and they spin. A hint: the end tells all the same.
  virtual std::function<void()> far() = 0;

 protected:
  ~Later() = default;
};

// What one submission gives its program.
struct Execution {
  void* const* table;       // one address per operand of every command, flattened in command order
  const uint32_t* scalars;  // as bits, in declaration order
  const std::shared_ptr<void>& arena;  // the transients, as the table has them
  const BufferView* views;             // by port
  Queue* queue;                        // that runs it
  Later& later;
  // When each command ended and, first, when the first began; null: nobody wants to know. Whoever
  // does gets a run that has ended when it returns.
  std::vector<int64_t>* command_ns = nullptr;
};

// A plan compiled for a device, with transients of its own or those of a pool. run() is called on
// the queue's thread, and again only when the run before has ended.
class Program {
 public:
  virtual ~Program() = default;
  // What went wrong at once. Where the run has taken `later`, it ends there and gives nothing here.
  virtual std::optional<Error> run(const Execution& execution) = 0;
  // The transients, for filling the operand table; a submission holds them, because a pool moves
  // them when it grows. Null where there are none.
  virtual std::shared_ptr<void> arena() const = 0;
  // The host's memory of a table, which the caller fills while nothing runs; where kernels find it;
  // told when it was filled.
  virtual void* frequency_table(int i) const = 0;
  virtual void* table_address(int i) const { return frequency_table(i); }
  virtual void table_filled(int) {}
};

class Queue {
 public:
  using Work = std::function<std::optional<Error>()>;
  using DeviceWork = std::function<std::optional<Error>(Later&)>;
  virtual ~Queue() = default;
  // Runs `work` after everything submitted before it and after the fences in `after`; a failed one
  // of those fails this one with its error, and nothing runs. Never blocks on the work. `work` is
  // destroyed before the fence signals, so what it holds is free for whoever waited; that may
  // happen on a library thread.
  virtual FencePtr enqueue(Work work, std::vector<FencePtr> after) = 0;
  // The same for work of the device itself: it may start while such work of this queue still goes
  // on, and keeps the order to that by itself. Fences signal in the order of submission.
  virtual FencePtr enqueue_device(DeviceWork work, std::vector<FencePtr> after) = 0;
  // Queues a copy of `data` to an address of the device; `keep` holds what must live until then,
  // and ends as the work of enqueue does.
  virtual FencePtr write(void* to, std::vector<char> data, std::shared_ptr<void> keep) = 0;
  // Waits until everything submitted before has finished; errors stay with their fences. `poll` as
  // in Fence::wait.
  virtual void flush(const std::function<void()>& poll = {}) = 0;
  virtual void close() = 0;  // raises lifetime while work is in flight
  virtual bool closed() const = 0;
  std::string label;
  DevicePtr device;
};

// Where memory is, as DLPack numbers it: type 1 is the host, 2 a CUDA device.
struct DlpackPlace {
  int32_t type = 1, id = 0;
  bool operator==(const DlpackPlace&) const = default;
};

class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;
  std::vector<ProbeNote> passed_over;  // by open_best: better-liked backends, and why not
  // What went otherwise than asked without harm, so far: a cache that was not readable.
  virtual std::vector<ProbeNote> notes() const { return {}; }
  virtual const DeviceInfo& info() const = 0;
  virtual Limits limits() const = 0;
  virtual BufferPtr new_buffer(DType, int64_t count, const std::string& label) = 0;  // zeroed
  // Whether caller's memory may be used in place: on the CPU alone.
  virtual bool wraps() const = 0;
  // Caller's memory used in place, the host's on the CPU and memory of its own device on CUDA;
  // `owner` keeps it alive. Others throw unsupported.
  virtual BufferPtr wrap(void* host, DType, int64_t count, bool writable,
                         std::shared_ptr<void> owner, const std::string& label) = 0;
  // Whether the host sees the memory of buffers.
  virtual bool host_visible() const { return true; }
  // Copies between memory of the host and of the device, or inside the device, that are over when
  // they return. Nothing else may use either then. Throw device errors.
  virtual void copy_in(void* to, const void* from, int64_t bytes);
  virtual void copy_out(void* to, const void* from, int64_t bytes);
  virtual void copy_within(void* to, const void* from, int64_t bytes);
  // Of its buffers. A producer whose memory is there orders its work before `import_stream`, and
  // finish_import waits for it; -1: there is nothing to order.
  virtual DlpackPlace dlpack_place() const { return {}; }
  virtual int64_t import_stream() { return -1; }
  virtual void finish_import() {}
  virtual QueuePtr default_queue() = 0;
  virtual QueuePtr new_queue(const std::string& label) = 0;
  virtual TransientPoolPtr new_transient_pool(const std::string& label) = 0;
  virtual std::unique_ptr<Program> compile(const PlanData& plan,
                                           const TransientPoolPtr& pool = nullptr) = 0;
  // Of a kernel's source, flags and compiler: as text that changes with any of them.
  virtual std::string kernel_digest(const std::string& kernel) const = 0;
  virtual void close() = 0;  // raises lifetime with the number of live children; frees nothing then
  virtual bool closed() const = 0;
  // Every call from a forked child but dropping objects is refused with lost_error.
  virtual void check_alive() const = 0;
};

struct CpuOptions {
  int threads = 0;      // 0: all cores this process may use
  std::string isa;      // empty: the best table of the machine
  int debug_fill = -1;  // byte written over all transient memory before every submission, or -1
  bool check = false;   // test device data before the node that reads it (DataRule)
  int64_t lose_at = 0;  // lose the device at the k-th submission, from 1; 0: never
};
DevicePtr open_cpu(const CpuOptions& options = {});

struct MetalOptions {
  int index = 0;        // of the adapters, in the order of enumerate_devices()
  int debug_fill = -1;  // as of the CPU; scratch included
  bool check = false;   // as of the CPU; a run then waits for the device before each node it tests
  int64_t lose_at = 0;  // as of the CPU
  std::string cache;    // folder of compiled pipelines; empty: ACCEL_METAL_CACHE, or none
  bool plain = false;   // as a device whose SIMD groups exchange nothing
};
// Throws no_adapter where there is none, or where the build holds no Metal backend.
DevicePtr open_metal(const MetalOptions& options = {});

struct CudaOptions {
  int index = 0;        // of the GPUs that enumerate_devices() lists, in its order
  int debug_fill = -1;  // as of the CPU; scratch included
  bool check = false;   // as of Metal
  int64_t lose_at = 0;  // as of the CPU
  bool serial = false;  // every launch waits for the one before it, also where the plan needs none
  // A launch may begin, and prepare, beside the one that it waits for, where the device can; where
  // not, the device's notes say why. No bit changes.
  bool overlap = true;
  // Products whose weight is [N, K] of f16 or bf16 run on matrix units, in the order matrix16: the
  // bits of a row are then not the CPU's. Where the device lacks the memory its notes say so.
  bool matrix = false;
};
// Throws no_adapter where there is none, or where the build holds no CUDA backend or no kernels.
DevicePtr open_cuda(const CudaOptions& options = {});
Enumeration enumerate_devices();
DevicePtr open_device(const std::array<uint8_t, 16>& id);

// Tests make the nth allocation of host memory by the library fail (capacity out_of_memory); 0
// switches it off.
void fail_allocation(int64_t nth);
// Tests put a text in the place of a shader, by its file below shaders/; empty: the built one
// again. For devices that open from now on.
void replace_shader(const std::string& file, const std::string& text);

}  // namespace accel
