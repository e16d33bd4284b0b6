// The weights of one GGUF block, for the types whose blocks have no exact planes, and the parts of
// Q4_K's (CONTRACT 19).
#pragma once
#include <cstdint>
#include <cstring>

#include "base/dtype.h"

namespace accel::quant {

inline constexpr int64_t kSuperBlock = 256;  // weights a block of the K types

inline double half_value(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, 2);
  return f32_from_f16(bits);
}

// Writes the block's weights. They are exact: each is a sum of two products of an f16 and small
// integers, which f64 holds.
using BlockDecoder = void (*)(const uint8_t* block, double* weights);
void decode_q5_0(const uint8_t* block, double* weights);
void decode_q5_1(const uint8_t* block, double* weights);
void decode_q2_k(const uint8_t* block, double* weights);
void decode_q3_k(const uint8_t* block, double* weights);
void decode_q5_k(const uint8_t* block, double* weights);
void decode_q6_k(const uint8_t* block, double* weights);

// The six-bit scale and minimum of each of the eight groups of a Q4_K or Q5_K block.
struct GroupScales {
  uint8_t scale[8], low[8];
};
GroupScales group_scales(const uint8_t* packed);

}  // namespace accel::quant
