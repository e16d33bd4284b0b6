// Nodes of a graph that overlap: a kernel behind a programmatic edge begins beside the one before
// it, prepares, and waits before it reads what that one writes.
#pragma once
#include <string>

#include "backends/cuda/api.h"

namespace accel::cuda {

// Why a device has plain edges alone; empty where it has the others. The version as
// cuDriverGetVersion gives it.
std::string plain_edges_because(const Driver& api, int64_t capability, int64_t driver_version);

// The text of a kernel for a device whose nodes overlap: what says where it waits is instructions,
// and memory that an earlier kernel may still write while this one has begun is not read as
// constant.
std::string overlapped(std::string ptx);

}  // namespace accel::cuda
