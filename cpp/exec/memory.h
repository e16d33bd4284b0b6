// Host memory of the library: zeroed, 64-byte aligned, pages from the system for large blocks.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "base/error.h"

namespace accel {

inline constexpr int64_t kAlignment = 64;

// Zeroed and 64-byte aligned; freed with the last owner. `what` names the request in the errors:
// capacity too_large above `limit`, out_of_memory where the system refuses. bytes of 0 gives one
// aligned line.
std::shared_ptr<void> allocate_zeroed(int64_t bytes, int64_t limit, const std::string& what);

// By what allocates for a device: throws too_large above the limit; the error of a request that was
// refused; whether a test wants this one refused (fail_allocation).
void check_bytes(int64_t bytes, int64_t limit, const std::string& what);
Error out_of_memory(int64_t bytes, int64_t limit, const std::string& what);
bool allocation_must_fail();

// The same for planes of a weight, of which a model has hundreds: those of some MiB and less share
// huge pages, because what streams through small pages waits for their translation. Memory goes
// back when all that were taken together are gone.
std::shared_ptr<void> allocate_plane(int64_t bytes, const std::string& what);

// Physical memory of the machine, and what is available now; 0 where the system does not say.
int64_t memory_total();
int64_t memory_available();

}  // namespace accel
