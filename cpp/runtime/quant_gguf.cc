// GGUF blocks to the planes of Int4 and Quantized, or to f16 (CONTRACT 19). A block is read byte by
// byte or by memcpy: the file is little-endian and its tensors have no alignment that a kernel may
// rely on.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <thread>

#include "runtime/quant.h"
#include "runtime/quant_gguf_blocks.h"

namespace accel::quant {
namespace {

static_assert(std::endian::native == std::endian::little,
              "GGUF planes are copied as little-endian words");

constexpr int64_t kBlock = 32;        // weights a block of the older types, and a group of planes
constexpr int64_t kNibbleBytes = 16;  // of Q4_0 and Q4_1
constexpr uint16_t kEight = 0x4800;   // as f16: the zero point of Q4_0
// A thread's least share in weights: below it, starting one costs more.
constexpr int64_t kMinWeights = 1 << 19;

struct Format {
  GgufType type;
  const char* name;
  int kind;         // as in PlaneSizes
  int64_t weights;  // a block
  int64_t bytes;    // a block
  DType array;
  BlockDecoder decode;  // of the types that are narrowed to f16
};
constexpr Format kFormats[] = {
    {GgufType::F32, "F32", 0, 1, 4, DType::F32, nullptr},
    {GgufType::F16, "F16", 0, 1, 2, DType::F16, nullptr},
    {GgufType::BF16, "BF16", 0, 1, 2, DType::BF16, nullptr},
    {GgufType::Q4_0, "Q4_0", 1, kBlock, 2 + kNibbleBytes, DType::F32, nullptr},
    {GgufType::Q4_1, "Q4_1", 2, kBlock, 4 + kNibbleBytes, DType::F32, nullptr},
    {GgufType::Q4_K, "Q4_K", 2, kSuperBlock, 144, DType::F32, nullptr},
    {GgufType::Q8_0, "Q8_0", 3, kBlock, 2 + kBlock, DType::F32, nullptr},
    {GgufType::Q5_0, "Q5_0", 0, kBlock, 22, DType::F16, decode_q5_0},
    {GgufType::Q5_1, "Q5_1", 0, kBlock, 24, DType::F16, decode_q5_1},
    {GgufType::Q2_K, "Q2_K", 0, kSuperBlock, 84, DType::F16, decode_q2_k},
    {GgufType::Q3_K, "Q3_K", 0, kSuperBlock, 110, DType::F16, decode_q3_k},
    {GgufType::Q5_K, "Q5_K", 0, kSuperBlock, 176, DType::F16, decode_q5_k},
    {GgufType::Q6_K, "Q6_K", 0, kSuperBlock, 210, DType::F16, decode_q6_k},
};

// Types that a file may hold and that have no planes, for the refusal's text.
struct Other {
  uint32_t type;
  const char* name;
};
// clang-format off
constexpr Other kOthers[] = {
    {9, "Q8_1"}, {15, "Q8_K"}, {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
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

Error type_error(const std::string& is) {
  std::string names;
  for (const Format& f : kFormats)
    names += (&f == std::end(kFormats) - 1 ? " or "
              : names.empty()              ? ""
                                           : ", ") +
             std::string(f.name);
  return attr_error("gguf_planes", "type", "gguf_planes: type is " + is + " and must be " + names);
}

const Format& format_of(uint32_t type) {
  for (const Format& f : kFormats)
    if (uint32_t(f.type) == type) return f;
  throw type_error(type_text(type));
}

uint16_t half_at(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

typedef uint16_t Pairs __attribute__((vector_size(kNibbleBytes)));
typedef uint8_t Bytes __attribute__((vector_size(kNibbleBytes / 2)));

// The low or the high nibbles of 16 bytes to two words of codes, the first code lowest: of two
// bytes at a time the nibbles side by side.
void pack_half(const uint8_t* bytes, int shift, uint32_t* codes) {
  Pairs pairs;
  std::memcpy(&pairs, bytes, sizeof pairs);
  pairs = pairs >> shift & 0x0f0f;
  const Bytes packed = __builtin_convertvector((pairs | pairs >> 4) & 0xff, Bytes);
  std::memcpy(codes, &packed, sizeof packed);
}

// Byte j of a block holds element j in its low half and element 16 + j in its high half.
void unpack_block(const uint8_t* nibbles, uint32_t* codes) {
  pack_half(nibbles, 0, codes);
  pack_half(nibbles, 4, codes + 2);
}

struct Planes {
  void *codes, *scales, *offsets;
};

// What a share of the work found: the largest error, and the first weight that f16 cannot hold.
struct Found {
  double error = 0;
  int64_t bad = -1;
  double value = 0;
};

void convert_q8_0(const uint8_t* p, const Planes& out, int64_t b) {
  static_cast<uint16_t*>(out.scales)[b] = half_at(p);
  std::memcpy(static_cast<int8_t*>(out.codes) + b * kBlock, p + 2, kBlock);
}

void convert_q4_0(const uint8_t* p, const Planes& out, int64_t b) {
  const uint16_t d = half_at(p);
  static_cast<uint16_t*>(out.scales)[b] = d;
  // A group whose scale is zero is its zero point: 0 there, not 8.
  static_cast<uint16_t*>(out.offsets)[b] = (d & 0x7fff) ? kEight : 0;
  unpack_block(p + 2, static_cast<uint32_t*>(out.codes) + b * 4);
}

void convert_q4_1(const uint8_t* p, const Planes& out, int64_t b) {
  static_cast<uint16_t*>(out.scales)[b] = half_at(p);
  static_cast<uint16_t*>(out.offsets)[b] = half_at(p + 2);
  unpack_block(p + 4, static_cast<uint32_t*>(out.codes) + b * 4);
}

// d, dmin, 12 bytes of scales, 128 bytes of nibbles, 32 of them for each two groups. A scale is a
// product of 11 and 6 bits, which f32 holds.
void convert_q4_k(const uint8_t* p, const Planes& out, int64_t b) {
  const float d = float(half_value(p)), dmin = float(half_value(p + 2));
  const GroupScales packed = group_scales(p + 4);
  float *scales = static_cast<float*>(out.scales) + b * 8,
        *biases = static_cast<float*>(out.offsets) + b * 8;
  uint32_t* codes = static_cast<uint32_t*>(out.codes) + b * 32;
  for (int g = 0; g < 8; ++g) {
    scales[g] = d * packed.scale[g];
    biases[g] = -(dmin * packed.low[g]);
    const uint8_t* nibbles = p + 16 + g / 2 * kBlock;
    pack_half(nibbles, g % 2 * 4, codes + g * 4);
    pack_half(nibbles + kNibbleBytes, g % 2 * 4, codes + g * 4 + 2);
  }
}

Found narrow_block(const Format& f, const uint8_t* p, uint16_t* out) {
  double weights[kSuperBlock];
  f.decode(p, weights);
  Found found;
  for (int64_t i = 0; i < f.weights; ++i) {
    out[i] = f16_from_f64(weights[i]);
    const double held = f32_from_f16(out[i]);
    if (!std::isfinite(held)) return {0, i, weights[i]};
    found.error = std::max(found.error, std::fabs(held - weights[i]));
  }
  return found;
}

Found convert(const Format& f, const uint8_t* blocks, const Planes& out, int64_t begin,
              int64_t end) {
  const uint8_t* p = blocks + begin * f.bytes;
  Found found;
  if (f.decode) {
    uint16_t* weights = static_cast<uint16_t*>(out.codes);
    for (int64_t b = begin; b < end; ++b, p += f.bytes) {
      Found one = narrow_block(f, p, weights + b * f.weights);
      if (one.bad >= 0) return {0, b * f.weights + one.bad, one.value};
      found.error = std::max(found.error, one.error);
    }
  } else if (f.kind == 0) {
    std::memcpy(static_cast<uint8_t*>(out.codes) + begin * f.bytes, p,
                size_t((end - begin) * f.bytes));
  } else {
    const auto each = [&](auto block) {
      for (int64_t b = begin; b < end; ++b, p += f.bytes) block(p, out, b);
    };
    if (f.type == GgufType::Q4_0) each([](auto... a) { convert_q4_0(a...); });
    if (f.type == GgufType::Q4_1) each([](auto... a) { convert_q4_1(a...); });
    if (f.type == GgufType::Q4_K) each([](auto... a) { convert_q4_k(a...); });
    if (f.type == GgufType::Q8_0) each([](auto... a) { convert_q8_0(a...); });
  }
  return found;
}

double require_held(const Format& f, const std::vector<Found>& parts) {
  double error = 0;
  for (const Found& part : parts) {
    error = std::max(error, part.error);
    if (part.bad < 0) continue;
    char value[32];
    std::snprintf(value, sizeof value, "%.9g", part.value);
    throw attr_error("gguf_planes", "blocks",
                     "gguf_planes: weight " + std::to_string(part.bad) + " of blocks is " + value +
                         " and must be at most 65504 in magnitude for " + f.name +
                         ", which is held in f16");
  }
  return error;
}

}  // namespace

uint32_t gguf_type_number(const std::string& name) {
  for (const Format& f : kFormats)
    if (name == f.name) return uint32_t(f.type);
  throw type_error("'" + name + "'");
}

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
  sizes.plane_dtype = f.type == GgufType::Q4_K ? DType::F32 : DType::F16;
  sizes.group = kBlock;
  sizes.codes = f.kind == 0 || f.kind == 3 ? shape.elements() : shape.elements() / 8;
  sizes.scales = f.kind == 0 ? 0 : shape.elements() / kBlock;
  return sizes;
}

double gguf_planes(uint32_t type, const uint8_t* blocks, const Shape& shape, const PlaneSizes&,
                   void* codes, void* scales, void* offsets, int threads) {
  const Format& f = format_of(type);
  const int64_t n_blocks = shape.elements() / f.weights;
  if (threads <= 0) threads = int(std::max(1u, std::thread::hardware_concurrency()));
  const int64_t parts = std::clamp<int64_t>(shape.elements() / kMinWeights, 1, threads);
  const Planes out{codes, scales, offsets};
  std::vector<Found> found(static_cast<size_t>(parts));
  auto part = [&](int64_t i) {
    const int64_t share = n_blocks / parts;
    const int64_t end = i + 1 == parts ? n_blocks : share * (i + 1);
    found[size_t(i)] = convert(f, blocks, out, share * i, end);
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
  return require_held(f, found);  // parts lie in order: the first bad weight of all is named
}

}  // namespace accel::quant
