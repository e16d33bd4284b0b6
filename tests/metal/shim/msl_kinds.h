// Kinds of exchange, by the Apple family that has them first: the emulator names a kernel that
// uses one on a device without it.
#pragma once

namespace mslrt {

enum Kind : unsigned {
  // Any device: ordering alone.
  k_simdgroup_barrier = 0,
  // Family 6 and up: permutes.
  k_simd_shuffle = 1,
  k_simd_shuffle_xor,
  k_simd_shuffle_down,
  k_simd_shuffle_up,
  k_simd_shuffle_rotate,
  k_simd_fill_down,
  k_simd_fill_up,
  k_simd_broadcast,
  k_simd_broadcast_first,
  // Family 7 and up: reductions, prefixes and matrices.
  k_simd_sum = 32,
  k_simd_product,
  k_simd_max,
  k_simd_min,
  k_simd_or,
  k_simd_and,
  k_simd_xor,
  k_simd_prefix,
  k_matrix_load,
  k_matrix_store,
  k_matrix_multiply,
};
constexpr unsigned family_of(unsigned kind) {
  return kind >= k_simd_sum ? 7 : kind >= k_simd_shuffle ? 6 : 0;
}

}  // namespace mslrt
