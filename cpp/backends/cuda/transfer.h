// Copies between the host and the device that are over when they return: through pinned memory, in
// pieces, one of which is filled or emptied while the other is on its way. On a stream of its own;
// nothing else may use the memory on either side meanwhile.
#pragma once
#include <mutex>

#include "backends/cuda/core.h"

namespace accel::cuda {

class Transfer {
 public:
  explicit Transfer(Core& core) : core_(core) {}
  ~Transfer();
  // Throw the error of the driver; nothing is on its way then.
  void zero(void* to, int64_t bytes);
  void in(void* to, const void* from, int64_t bytes);
  void out(void* to, const void* from, int64_t bytes);
  void within(void* to, const void* from, int64_t bytes);
  // The stream, for a producer that orders its work before it, and waiting for it.
  CUstream stream();
  void finish();

 private:
  static constexpr int64_t kPiece = int64_t(4) << 20;
  struct Slot {
    Pinned memory;
    CUevent over = nullptr;
    bool busy = false;
  };
  class Use;
  void prepare();
  void wait(Slot& slot);

  Core& core_;
  std::mutex mutex_;
  std::shared_ptr<Context> context_;
  CUstream stream_ = nullptr;
  Slot slots_[2];
};

}  // namespace accel::cuda
