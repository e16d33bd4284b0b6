// Host quantizers and GGUF blocks to planes (CONTRACT 19). Arithmetic in f64, each stored number
// rounded once.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/shape.h"

namespace accel::quant {

inline constexpr int64_t kInt8Block = 32;
inline constexpr int64_t kInt4Group = 128;

struct Int8Result {
  std::vector<int8_t> quants;
  std::vector<uint16_t> scales;  // f16
};
struct Int4Result {
  std::vector<uint32_t> codes;
  std::vector<uint16_t> scales, zeros;  // f16
};

// All throw attr_error as CONTRACT 19 says.
Int8Result int8_quantize(std::span<const float> w);
std::vector<float> int8_dequantize(std::span<const int8_t> quants,
                                   std::span<const uint16_t> scales);
double int8_bound(std::span<const float> x, std::span<const float> scales);
Int4Result int4_quantize(std::span<const float> w, int64_t group = kInt4Group);
std::vector<float> int4_dequantize(std::span<const uint32_t> codes,
                                   std::span<const uint16_t> scales,
                                   std::span<const uint16_t> zeros, int64_t weights,
                                   int64_t group = kInt4Group);
double int4_bound(std::span<const float> x, std::span<const float> scales,
                  std::span<const float> zeros);

// One GGUF tensor's planes, written into memory the caller owns, in flat order n * K + k.
enum class GgufType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  BF16 = 30
};
struct PlaneSizes {
  int kind = 0;        // 0 array, 1 int4 with zeros, 2 int4 with biases, 3 int8
  int64_t codes = 0;   // u32 words, int8 quants, or array elements
  int64_t scales = 0;  // entries of scales and of zeros or biases
  DType array_dtype = DType::F32;
  DType plane_dtype = DType::F16;  // of scales and of zeros or biases
  int64_t group = 32;
};
// The number of the type of this name. Throws attr_error when it has no planes.
uint32_t gguf_type_number(const std::string& name);
// Throws attr_error: unknown type (named), row length no multiple of the block, byte count off.
PlaneSizes gguf_plane_sizes(uint32_t type, int64_t bytes, const Shape& shape);
// offsets is the zeros or biases plane (null for int8 and arrays). Same bits for any number of
// threads. Gives the largest distance between a weight and what is held of it; throws attr_error
// for a weight that f16 cannot hold.
double gguf_planes(uint32_t type, const uint8_t* blocks, const Shape& shape,
                   const PlaneSizes& sizes, void* codes, void* scales, void* offsets, int threads);

}  // namespace accel::quant
