// GGUF blocks to the planes of Int4 and Quantized, exactly (CONTRACT 19). A block is read byte by
// byte or by memcpy: the file is little-endian and its tensors have no alignment that a kernel may
// rely on.
#include <algorithm>
#include <bit>
#include <cstring>
#include <system_error>
#include <thread>

#include "runtime/quant.h"

namespace accel::quant {
namespace {

static_assert(std::endian::native == std::endian::little,
              "GGUF planes are copied as little-endian words");

constexpr int64_t kBlock = 32;        // weights a block of every block type here
constexpr int64_t kNibbleBytes = 16;  // of Q4_0 and Q4_1
// A thread's least share in blocks: below it, starting one costs more.
constexpr int64_t kMinBlocks = 1 << 14;

struct Format {
  uint32_t type;
  const char* name;
  int kind;         // as in PlaneSizes
  int64_t weights;  // a block
  int64_t bytes;    // a block
  DType array;
};
constexpr Format kFormats[] = {
    {uint32_t(GgufType::F32), "F32", 0, 1, 4, DType::F32},
    {uint32_t(GgufType::F16), "F16", 0, 1, 2, DType::F16},
    {uint32_t(GgufType::BF16), "BF16", 0, 1, 2, DType::BF16},
    {uint32_t(GgufType::Q4_0), "Q4_0", 1, kBlock, 2 + kNibbleBytes, DType::F32},
    {uint32_t(GgufType::Q4_1), "Q4_1", 2, kBlock, 4 + kNibbleBytes, DType::F32},
    {uint32_t(GgufType::Q8_0), "Q8_0", 3, kBlock, 2 + kBlock, DType::F32},
};

// Types that a file may hold and that have no exact planes, for the refusal's text.
struct Other {
  uint32_t type;
  const char* name;
};
// clang-format off
constexpr Other kOthers[] = {
    {6, "Q5_0"}, {7, "Q5_1"}, {9, "Q8_1"}, {10, "Q2_K"}, {11, "Q3_K"}, {12, "Q4_K"}, {13, "Q5_K"},
    {14, "Q6_K"}, {15, "Q8_K"}, {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"}, {24, "I8"}, {25, "I16"},
    {26, "I32"}, {27, "I64"}, {28, "F64"}, {29, "IQ1_M"}, {34, "TQ1_0"}, {35, "TQ2_0"},
    {39, "MXFP4"}, {40, "NVFP4"},
};
// clang-format on

std::string type_text(uint32_t type) {
  for (const Other& o : kOthers)
    if (o.type == type) return o.name;
  return "number " + std::to_string(type);
}

const Format& format_of(uint32_t type) {
  for (const Format& f : kFormats)
    if (f.type == type) return f;
  throw attr_error("gguf_planes", "type",
                   "gguf_planes: type is " + type_text(type) +
                       " and must be F32, F16, BF16, Q4_0, Q4_1 or Q8_0");
}

uint16_t half_at(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// Eight bytes, each with a nibble in its low half, to one word of eight codes, the first one
// lowest.
uint32_t pack_nibbles(uint64_t v) {
  v = (v | v >> 4) & 0x00ff00ff00ff00ffull;
  v = (v | v >> 8) & 0x0000ffff0000ffffull;
  return uint32_t(v | v >> 16);
}

// Byte j of a block holds element j in its low half and element 16 + j in its high half.
void unpack_block(const uint8_t* nibbles, uint32_t* codes) {
  constexpr uint64_t kLow = 0x0f0f0f0f0f0f0f0full;
  uint64_t first, second;
  std::memcpy(&first, nibbles, 8);
  std::memcpy(&second, nibbles + 8, 8);
  codes[0] = pack_nibbles(first & kLow);
  codes[1] = pack_nibbles(second & kLow);
  codes[2] = pack_nibbles(first >> 4 & kLow);
  codes[3] = pack_nibbles(second >> 4 & kLow);
}

struct Planes {
  void* codes;
  uint16_t* scales;
  uint16_t* offsets;
};

void convert(const Format& f, const uint8_t* blocks, const Planes& out, int64_t begin,
             int64_t end) {
  const uint8_t* p = blocks + begin * f.bytes;
  if (f.kind == 0) {
    std::memcpy(static_cast<uint8_t*>(out.codes) + begin * f.bytes, p,
                size_t((end - begin) * f.bytes));
    return;
  }
  for (int64_t b = begin; b < end; ++b, p += f.bytes) {
    const uint16_t d = half_at(p);
    out.scales[b] = d;
    if (f.kind == 3) {
      std::memcpy(static_cast<int8_t*>(out.codes) + b * kBlock, p + 2, kBlock);
    } else if (f.kind == 1) {
      // A group whose scale is zero is its zero point: 0 there, not 8.
      out.offsets[b] = (d & 0x7fff) ? f16_from_f32(8) : 0;
      unpack_block(p + 2, static_cast<uint32_t*>(out.codes) + b * 4);
    } else {
      out.offsets[b] = half_at(p + 2);
      unpack_block(p + 4, static_cast<uint32_t*>(out.codes) + b * 4);
    }
  }
}

}  // namespace

PlaneSizes gguf_plane_sizes(uint32_t type, int64_t bytes, const Shape& shape) {
  const Format& f = format_of(type);
  auto refuse = [&](const char* operand, const std::string& text) {
    throw attr_error("gguf_planes", operand, "gguf_planes: " + text);
  };
  if (shape.rank() == 0) refuse("shape", "shape is empty and must have an axis");
  for (int64_t extent : shape)
    if (extent <= 0) refuse("shape", "shape is " + shape.to_string() + " and must be positive");
  if (!shape.fits())
    refuse("shape", "shape is " + shape.to_string() + " and has too many elements");
  if (shape.back() % f.weights)
    refuse("shape", "shape is " + shape.to_string() + " and its rows must be a multiple of " +
                        std::to_string(f.weights) + " for " + f.name);
  const int64_t n_blocks = shape.elements() / f.weights;
  // Divide, do not multiply: a huge shape must not wrap into the byte count.
  if (bytes % f.bytes || bytes / f.bytes != n_blocks)
    refuse("blocks", "blocks is " + std::to_string(bytes) + " bytes and must be " +
                         std::to_string(n_blocks) + " times " + std::to_string(f.bytes) + " for " +
                         f.name + shape.to_string());
  PlaneSizes sizes;
  sizes.kind = f.kind;
  sizes.array_dtype = f.array;
  sizes.group = kBlock;
  sizes.codes = f.kind == 0 || f.kind == 3 ? shape.elements() : shape.elements() / 8;
  sizes.scales = f.kind == 0 ? 0 : n_blocks;
  return sizes;
}

void gguf_planes(uint32_t type, const uint8_t* blocks, const Shape& shape, const PlaneSizes&,
                 void* codes, uint16_t* scales, uint16_t* offsets, int threads) {
  const Format& f = format_of(type);
  const int64_t n_blocks = shape.elements() / f.weights;
  const int64_t units = f.kind == 0 ? n_blocks / kBlock : n_blocks;
  if (threads <= 0) threads = int(std::max(1u, std::thread::hardware_concurrency()));
  const int64_t parts = std::clamp<int64_t>(units / kMinBlocks, 1, threads);
  const Planes out{codes, scales, offsets};
  auto part = [&](int64_t i) {
    const int64_t share = n_blocks / parts;
    convert(f, blocks, out, share * i, i + 1 == parts ? n_blocks : share * (i + 1));
  };
  std::vector<std::thread> helpers;
  helpers.reserve(size_t(parts));
  for (int64_t i = 1; i < parts; ++i) {
    try {
      helpers.emplace_back(part, i);
    } catch (const std::system_error&) {  // no thread to be had: the bits are the same without it
      part(i);
    }
  }
  part(0);
  for (std::thread& t : helpers) t.join();
}

}  // namespace accel::quant
