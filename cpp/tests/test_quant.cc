// The host quantizers and GGUF planes without Python, so that the sanitizers see them.
#include <cmath>
#include <cstring>

#include "check.h"
#include "runtime/quant.h"

using namespace accel;
using namespace accel::quant;

namespace {

uint32_t next(uint32_t& state) {
  return state = state * 1664525u + 1013904223u;
}

std::vector<float> weights(size_t n, uint32_t seed) {
  std::vector<float> w(n);
  for (float& v : w) v = float(int32_t(next(seed))) * 0x1p-31f;
  return w;
}

struct Planes {
  PlaneSizes sizes;
  std::vector<uint8_t> codes;
  std::vector<uint16_t> scales, offsets;  // an f32 entry is two of them
  double error = 0;
};

Planes planes_of(uint32_t type, const std::vector<uint8_t>& blocks, const Shape& shape,
                 int threads) {
  Planes p;
  p.sizes = gguf_plane_sizes(type, int64_t(blocks.size()), shape);
  const int64_t unit = p.sizes.kind == 0 ? size_of(p.sizes.array_dtype) : p.sizes.kind == 3 ? 1 : 4;
  p.codes.resize(size_t(p.sizes.codes * unit));
  p.scales.resize(size_t(p.sizes.scales * size_of(p.sizes.plane_dtype) / 2));
  p.offsets.resize(p.sizes.kind == 1 || p.sizes.kind == 2 ? p.scales.size() : 0);
  p.error = gguf_planes(type, blocks.data(), shape, p.sizes, p.codes.data(), p.scales.data(),
                        p.offsets.data(), threads);
  return p;
}

}  // namespace

TEST(int4_takes_every_group_and_a_partial_last_one) {
  for (int64_t group : {32, 64, 128})
    for (size_t n : {1, 7, 8, 9, 127, 128, 129, 300}) {
      const std::vector<float> w = weights(n, uint32_t(n));
      const Int4Result q = int4_quantize(w, group);
      CHECK_EQ(q.codes.size(), (n + 7) / 8);
      const auto back = int4_dequantize(q.codes, q.scales, q.zeros, int64_t(n), group);
      for (size_t i = 0; i < n; ++i) {
        const float s = f32_from_f16(q.scales[i / size_t(group)]);
        const float z = f32_from_f16(q.zeros[i / size_t(group)]);
        const float one[] = {1};
        CHECK(std::fabs(back[i] - w[i]) <= int4_bound(one, {&s, 1}, {&z, 1}) + 0x1p-22);
      }
    }
}

TEST(int8_takes_a_partial_last_block) {
  for (size_t n : {1, 31, 32, 33, 100}) {
    const std::vector<float> w = weights(n, uint32_t(n) + 7);
    const Int8Result q = int8_quantize(w);
    CHECK_EQ(q.scales.size(), (n + 31) / 32);
    const auto back = int8_dequantize(q.quants, q.scales);
    for (size_t i = 0; i < n; ++i)
      CHECK(std::fabs(back[i] - w[i]) <= f32_from_f16(q.scales[i / 32]) * (0.5 + 127 * 0x1p-11));
  }
}

TEST(low_nibbles_are_the_first_sixteen_weights) {
  std::vector<uint8_t> block(20);
  block[1] = 0x3c;  // d = 1
  block[3] = 0x40;  // m = 2
  for (uint8_t i = 0; i < 16; ++i) block[size_t(4 + i)] = uint8_t(i | (15 - i) << 4);
  const Planes p = planes_of(uint32_t(GgufType::Q4_1), block, Shape{1, 32}, 1);
  const std::vector<uint8_t> want = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe,
                                     0xef, 0xcd, 0xab, 0x89, 0x67, 0x45, 0x23, 0x01};
  CHECK(p.codes == want);
  CHECK_EQ(p.sizes.kind, 2);
  CHECK_EQ(p.scales[0], 0x3c00);
  CHECK_EQ(p.offsets[0], 0x4000);
}

TEST(a_scale_of_zero_makes_the_zero_point_zero) {
  std::vector<uint8_t> blocks(3 * 18);
  blocks[18 + 1] = 0x80;  // -0
  blocks[36] = 1;         // the least subnormal
  const Planes p = planes_of(uint32_t(GgufType::Q4_0), blocks, Shape{96}, 1);
  CHECK_EQ(p.offsets[0], 0);
  CHECK_EQ(p.offsets[1], 0);
  CHECK_EQ(p.offsets[2], 0x4800);  // 8
}

// One block whose every field is told apart from its neighbours, by the layout of the format.
TEST(q4_k_groups_are_scaled_and_moved_apart) {
  std::vector<uint8_t> block(144);
  block[1] = 0x3c;  // d = 1
  block[3] = 0x40;  // dmin = 2
  // Scales 1 to 8 and minimums 33 to 40: four whole bytes each, then nibbles with two top bits.
  for (uint8_t g = 0; g < 4; ++g) {
    block[size_t(4 + g)] = uint8_t(g + 1);
    block[size_t(8 + g)] = uint8_t((g + 33) | 0x80);
    block[size_t(12 + g)] = uint8_t((g + 5) | (g + 5) << 4);
  }
  for (size_t i = 0; i < 128; ++i) block[16 + i] = uint8_t(0xa0 | (i & 15));
  const Planes p = planes_of(uint32_t(GgufType::Q4_K), block, Shape{256}, 1);
  CHECK_EQ(p.sizes.kind, 2);
  CHECK(p.sizes.plane_dtype == DType::F32);
  std::vector<float> scales(8), biases(8);
  std::memcpy(scales.data(), p.scales.data(), 32);
  std::memcpy(biases.data(), p.offsets.data(), 32);
  for (size_t g = 0; g < 8; ++g) {
    CHECK_EQ(scales[g], float(g + 1));
    CHECK_EQ(biases[g], -2 * float(g + 33));
    CHECK_EQ(int(p.codes[g * 16]), g % 2 ? 0xaa : 0x10);
  }
  CHECK_EQ(p.error, 0);
}

TEST(a_weight_beyond_f16_is_refused_and_the_first_one_named) {
  const Shape shape{1031, 2048};
  std::vector<uint8_t> blocks(size_t(shape.elements() / 32 * 22));
  for (size_t block : {7000u, 60000u}) blocks[block * 22] = 0, blocks[block * 22 + 1] = 0x7c;
  for (int threads : {1, 2, 5})
    CHECK_THROWS(planes_of(uint32_t(GgufType::Q5_0), blocks, shape, threads), Error,
                 "weight 224000 of blocks is -inf");
}

TEST(threads_give_the_same_bits) {
  const Shape shape{1031, 2048};
  for (auto [type, bytes] : {std::pair{GgufType::Q4_0, 18},
                             {GgufType::Q4_1, 20},
                             {GgufType::Q8_0, 34},
                             {GgufType::Q4_K, 18},  // 144 for 256 weights
                             {GgufType::F16, 64}}) {
    std::vector<uint8_t> blocks(size_t(shape.elements() / 32 * bytes));
    uint32_t state = 5;
    for (uint8_t& b : blocks) b = uint8_t(next(state) >> 24);
    const Planes one = planes_of(uint32_t(type), blocks, shape, 1);
    for (int threads : {2, 3, 5}) {
      const Planes many = planes_of(uint32_t(type), blocks, shape, threads);
      CHECK(many.codes == one.codes && many.scales == one.scales && many.offsets == one.offsets);
    }
  }
}

TEST(wrong_sizes_are_refused_without_reading) {
  CHECK_THROWS(gguf_plane_sizes(3, 19, Shape{32}), Error, "blocks is 19 bytes");
  CHECK_THROWS(gguf_plane_sizes(3, 40, Shape{32}), Error, "1 times 20");
  CHECK_THROWS(gguf_plane_sizes(3, 20, Shape{31}), Error, "multiple of 32");
  CHECK_THROWS(gguf_plane_sizes(15, 292, Shape{256}), Error, "Q8_K");
  CHECK_THROWS(gguf_plane_sizes(0, 0, Shape{}), Error, "must have an axis");
  CHECK_THROWS(gguf_plane_sizes(0, 0, Shape({int64_t(1) << 62, 8})), Error, "too many");
  const std::vector<float> bad = {1, NAN};
  CHECK_THROWS(int8_quantize(bad), Error, "w[1] is nan");
  CHECK_THROWS(int4_quantize(bad, 16), Error, "group is 16");
}
