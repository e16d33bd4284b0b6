#include "runtime/quant_gguf_blocks.h"

namespace accel::quant {
namespace {

constexpr int kHalf = 16;  // low and high nibbles of 16 bytes are a block of 32

// The five-bit code of element i of a Q5_0 or Q5_1 block: a nibble and one bit of `high`.
int code5(const uint8_t* nibbles, uint32_t high, int i) {
  const int nibble = i < kHalf ? nibbles[i] & 15 : nibbles[i - kHalf] >> 4;
  return nibble | int(high >> i & 1) << 4;
}

uint32_t word_at(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}

}  // namespace

// d, 32 high bits, 16 bytes of nibbles: d * (code - 16).
void decode_q5_0(const uint8_t* block, double* weights) {
  const double d = half_value(block);
  const uint32_t high = word_at(block + 2);
  for (int i = 0; i < 2 * kHalf; ++i) weights[i] = d * (code5(block + 6, high, i) - 16);
}

// d, m, 32 high bits, 16 bytes of nibbles: d * code + m.
void decode_q5_1(const uint8_t* block, double* weights) {
  const double d = half_value(block), m = half_value(block + 2);
  const uint32_t high = word_at(block + 4);
  for (int i = 0; i < 2 * kHalf; ++i) weights[i] = d * code5(block + 8, high, i) + m;
}

// 16 bytes of a four-bit scale and minimum for each 16 weights, 64 bytes of codes, d, dmin. Each
// 32 bytes hold 128 codes of two bits: those of a group of 32 in the same two bits of every byte.
void decode_q2_k(const uint8_t* block, double* weights) {
  const uint8_t* codes = block + 16;
  const double d = half_value(block + 80), dmin = half_value(block + 82);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int scales = block[i / 16];
    const int code = codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    weights[i] = d * (scales & 15) * code - dmin * (scales >> 4);
  }
}

// 32 bytes of high bits, 64 bytes of codes laid out as in Q2_K, 12 bytes of scales, d. Bit i / 32
// of a high byte is set where 4 is not taken off. Scale g has four bits in byte g % 8 and two in
// byte 8 + g % 4.
void decode_q3_k(const uint8_t* block, double* weights) {
  const uint8_t *codes = block + 32, *scales = block + 96;
  const double d = half_value(block + 108);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int g = i / 16;
    const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    const int scale = (low | (scales[8 + g % 4] >> (g / 4 * 2) & 3) << 4) - 32;
    const int code = codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const int high = block[i % 32] >> (i / 32) & 1;
    weights[i] = d * scale * (high ? code : code - 4);
  }
}

// Groups 0 to 3: the low six bits of byte g and of byte 4 + g. Groups 4 to 7: four bits of byte
// 4 + g (scale low, minimum high), and above them the top two bits of those same bytes.
GroupScales group_scales(const uint8_t* packed) {
  GroupScales out{};
  for (int g = 0; g < 4; ++g) {
    const int s = packed[g], m = packed[4 + g], rest = packed[8 + g];
    out.scale[g] = uint8_t(s & 63);
    out.low[g] = uint8_t(m & 63);
    out.scale[4 + g] = uint8_t((rest & 15) | (s >> 6) << 4);
    out.low[4 + g] = uint8_t(rest >> 4 | (m >> 6) << 4);
  }
  return out;
}

// d, dmin, 12 bytes of scales, 32 bytes of high bits, 128 bytes of nibbles. 32 bytes of nibbles
// hold two groups of 32, and bit g of a high byte belongs to group g.
void decode_q5_k(const uint8_t* block, double* weights) {
  const double d = half_value(block), dmin = half_value(block + 2);
  const GroupScales scales = group_scales(block + 4);
  const uint8_t *high = block + 16, *nibbles = block + 48;
  for (int i = 0; i < kSuperBlock; ++i) {
    const int g = i / 32, at = i % 32;
    const int nibble = nibbles[g / 2 * 32 + at] >> (g % 2 * 4) & 15;
    const int code = nibble | (high[at] >> g & 1) << 4;
    weights[i] = d * scales.scale[g] * code - dmin * scales.low[g];
  }
}

// 128 bytes of nibbles, 64 bytes of two high bits, 16 signed scales, d. Each half of the block has
// 64 bytes of nibbles (first their low halves, then their high ones) and 32 bytes of high bits.
void decode_q6_k(const uint8_t* block, double* weights) {
  const uint8_t *high = block + 128, *scales = block + 192;
  const double d = half_value(block + 208);
  for (int i = 0; i < kSuperBlock; ++i) {
    const int half = i / 128, in_half = i % 128, quarter = in_half / 32;
    const int nibble = block[half * 64 + in_half % 64] >> (in_half / 64 * 4) & 15;
    const int top = high[half * 32 + i % 32] >> (quarter * 2) & 3;
    weights[i] = d * int8_t(scales[i / 16]) * ((nibble | top << 4) - 32);
  }
}

}  // namespace accel::quant
