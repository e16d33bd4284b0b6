// Conversions of base against their definitions.
#include <bit>
#include <cmath>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"
#include "tests/check.h"

using namespace accel;

// Every f16 survives f16 -> f32 -> f16; NaN becomes 0x7e00.
TEST(f16_round_trip) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float v = f32_from_f16(uint16_t(h));
    if (std::isnan(v)) CHECK_EQ(f16_from_f32(v), uint16_t(0x7e00));
    else CHECK_EQ(f16_from_f32(v), uint16_t(h));
  }
}

// Between two neighbours the nearer one wins, and the even one at the middle.
TEST(f16_rounds_to_nearest_even) {
  for (uint32_t h = 0; h < 0x7bff; ++h) {
    const double a = f32_from_f16(uint16_t(h)), b = f32_from_f16(uint16_t(h + 1)),
                 middle = (a + b) / 2;
    const uint16_t even = uint16_t(h % 2 ? h + 1 : h);
    CHECK_EQ(f16_from_f64(middle), even);
    CHECK_EQ(f16_from_f64(std::nextafter(middle, 0.0)), uint16_t(h));
    CHECK_EQ(f16_from_f64(std::nextafter(middle, 1e9)), uint16_t(h + 1));
    CHECK_EQ(f16_from_f64(-middle), uint16_t(even | 0x8000));
  }
  CHECK_EQ(f16_from_f32(65519.f), uint16_t(0x7bff));
  CHECK_EQ(f16_from_f32(65520.f), uint16_t(0x7c00));
  CHECK_EQ(f16_from_f32(-INFINITY), uint16_t(0xfc00));
}

TEST(bf16_conversions) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float v = f32_from_bf16(uint16_t(h));
    if (std::isnan(v)) CHECK_EQ(bf16_from_f32(v), uint16_t(0x7fc0));
    else CHECK_EQ(bf16_from_f32(v), uint16_t(h));
  }
  CHECK_EQ(bf16_from_f32(std::bit_cast<float>(0x3f808000u)), uint16_t(0x3f80));
  CHECK_EQ(bf16_from_f32(std::bit_cast<float>(0x3f818000u)), uint16_t(0x3f82));
}

TEST(shapes) {
  CHECK_EQ((Shape{4, 8}).to_string(), std::string("[4 8]"));
  CHECK_EQ((Shape{4, 8}).elements(), 32);
  CHECK(!(Shape{int64_t(1) << 62, 4}).fits());
  CHECK(is_contiguous({1, 5}, {77, 1}, 0));
  CHECK(!is_contiguous({2, 5}, {1, 2}, 0));
  CHECK(!is_contiguous({2, 5}, {5, 1}, 5));
}

TEST(diagnostic_texts) {
  const Diagnostic a{ErrorKind::shape,
                     "rms_norm",
                     "gain",
                     "rms_norm: gain is [7] and must be [8]",
                     {"/x/model.py", 12}};
  CHECK_EQ(a.text(), std::string("rms_norm: gain is [7] and must be [8], recorded at model.py:12"));
  const Error one = graph_error({a});
  CHECK(one.kind == ErrorKind::shape && one.op == "rms_norm" && one.site.line == 12);
  const Error two = graph_error({a, a});
  CHECK(two.kind == ErrorKind::graph && two.diagnostics.size() == 2);
}
