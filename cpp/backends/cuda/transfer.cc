#include "backends/cuda/transfer.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda/errors.h"
#include "exec/fork.h"

namespace accel::cuda {

// One copy: the lock, the context, the stream. Where it throws, what was queued ends first; where
// nothing says that it has, the device is lost, since the pieces may still be read and written.
class Transfer::Use {
 public:
  explicit Use(Transfer& of)
      : of_(of), lock_(of.mutex_), context_(of.core_.context()), current_(*context_) {
    check(current_.result, "cuCtxPushCurrent", of_.core_);
    of_.prepare();
  }
  ~Use() {
    if (!over_) settle();
    for (Slot& slot : of_.slots_) slot.busy = false;
  }
  void finish() {
    check(of_.core_.api.StreamSynchronize(of_.stream_), "cuStreamSynchronize", of_.core_);
    over_ = true;
  }

 private:
  void settle() {
    if (const CUresult result = of_.core_.api.StreamSynchronize(of_.stream_))
      of_.core_.lose(std::string("because nothing says when its copies end: ") +
                     error_of(result, "cuStreamSynchronize", of_.core_).what());
  }

  Transfer& of_;
  std::lock_guard<std::mutex> lock_;
  std::shared_ptr<Context> context_;
  const Current current_;
  bool over_ = false;
};

Transfer::~Transfer() {
  if (!context_ || forked()) return;
  const Current current(*context_);
  if (current.result) return;
  for (Slot& slot : slots_) {
    if (slot.over) core_.api.EventDestroy(slot.over);
    slot.memory.reset();
  }
  if (stream_) core_.api.StreamDestroy(stream_);
}

// With the lock, in the context: what is still missing is made.
void Transfer::prepare() {
  const Driver& api = core_.api;
  context_ = core_.context();
  if (!stream_) check(api.StreamCreate(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate", core_);
  for (Slot& slot : slots_) {
    if (!slot.memory) slot.memory = core_.pin(kPiece);
    if (!slot.over)
      check(api.EventCreate(&slot.over, CU_EVENT_DISABLE_TIMING), "cuEventCreate", core_);
  }
}

void Transfer::wait(Slot& slot) {
  if (!slot.busy) return;
  slot.busy = false;
  check(core_.api.EventSynchronize(slot.over), "cuEventSynchronize", core_);
}

void Transfer::zero(void* to, int64_t bytes) {
  Use use(*this);
  check(core_.api.MemsetD8Async(device_pointer(to), 0, size_t(bytes), stream_), "cuMemsetD8Async",
        core_);
  use.finish();
}

void Transfer::in(void* to, const void* from, int64_t bytes) {
  Use use(*this);
  for (int64_t at = 0, n = 0; at < bytes; at += n) {
    Slot& slot = slots_[at / kPiece % 2];
    n = std::min(kPiece, bytes - at);
    wait(slot);
    std::memcpy(slot.memory.get(), static_cast<const char*>(from) + at, size_t(n));
    check(core_.api.MemcpyHtoDAsync(device_pointer(to) + CUdeviceptr(at), slot.memory.get(),
                                    size_t(n), stream_),
          "cuMemcpyHtoDAsync", core_);
    if (bytes <= kPiece) break;
    check(core_.api.EventRecord(slot.over, stream_), "cuEventRecord", core_);
    slot.busy = true;
  }
  use.finish();
}

void Transfer::out(void* to, const void* from, int64_t bytes) {
  Use use(*this);
  if (bytes <= kPiece) {
    check(core_.api.MemcpyDtoHAsync(slots_[0].memory.get(), device_pointer(from), size_t(bytes),
                                    stream_),
          "cuMemcpyDtoHAsync", core_);
    use.finish();
    std::memcpy(to, slots_[0].memory.get(), size_t(bytes));
    return;
  }
  const auto bring = [&](int64_t at) {
    Slot& slot = slots_[at / kPiece % 2];
    check(core_.api.MemcpyDtoHAsync(slot.memory.get(), device_pointer(from) + CUdeviceptr(at),
                                    size_t(std::min(kPiece, bytes - at)), stream_),
          "cuMemcpyDtoHAsync", core_);
    check(core_.api.EventRecord(slot.over, stream_), "cuEventRecord", core_);
    slot.busy = true;
  };
  for (int64_t at = 0; at < bytes; at += kPiece) {
    if (at == 0) bring(0);
    if (at + kPiece < bytes) bring(at + kPiece);
    Slot& slot = slots_[at / kPiece % 2];
    wait(slot);
    std::memcpy(static_cast<char*>(to) + at, slot.memory.get(),
                size_t(std::min(kPiece, bytes - at)));
  }
  use.finish();
}

void Transfer::within(void* to, const void* from, int64_t bytes) {
  Use use(*this);
  check(core_.api.MemcpyDtoDAsync(device_pointer(to), device_pointer(from), size_t(bytes), stream_),
        "cuMemcpyDtoDAsync", core_);
  use.finish();
}

CUstream Transfer::stream() {
  Use use(*this);
  return stream_;
}

void Transfer::finish() {
  Use use(*this);
  use.finish();
}

}  // namespace accel::cuda
