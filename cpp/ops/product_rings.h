// Rings of shared memory of CUDA (shaders/shared/ring_tiles.h) as the host sees them: which a shape
// gets, its memory and its groups.
#pragma once
#include "ops/products.h"
#include "shared/ring_tiles.h"

namespace accel {

struct ProductRing {
  std::string_view suffix;
  uint32_t rows, threads, columns, warps, depth, stages;

  uint32_t own() const { return 32 / threads * columns; }  // columns of a warp
  uint32_t tile() const { return own() * warps; }          // of a group
  uint32_t bytes(uint32_t K, RingFormat f) const {
    return ring_x_bytes(K, rows, depth) + warps * ring_warp_bytes(f, own(), depth, stages);
  }
};

// Whether a row is one of with_rings, and the row that it was made of.
bool is_ring(const KernelRow& row);
KernelRow plain_of(const KernelRow& row);

RingFormat ring_format(const Call& c);
// Why no ring takes the call, or null. M decides nothing.
const char* needs_ring(const Call& c, const Limits& limits);
// For m rows of k by weights of n columns together, in the format of the call's.
const ProductRing& ring_for(const Call& c, int64_t m, int64_t k, int64_t n);
// Launch::per_unit of it.
uint32_t ring_per_unit(const ProductRing& ring, RingFormat format, int64_t n);

}  // namespace accel
