// Element types: storage sizes, names and the exact conversions between them.
#pragma once
#include <cstdint>
#include <string>

namespace accel {

enum class DType : uint8_t { F32, F16, BF16, I32, U32, I8, U8 };
inline constexpr int kDTypeCount = 7;

inline constexpr int64_t size_of(DType t) {
  switch (t) {
    case DType::F32:
    case DType::I32:
    case DType::U32:
      return 4;
    case DType::F16:
    case DType::BF16:
      return 2;
    case DType::I8:
    case DType::U8:
      return 1;
  }
  return 0;
}

// "f32", "f16", "bf16", "i32", "u32", "i8", "u8".
const char* name_of(DType t);

// IEEE half and bfloat16, round to nearest even; f32 NaN becomes 0x7e00 and 0x7fc0.
uint16_t f16_from_f32(float v);
float f32_from_f16(uint16_t bits);
uint16_t bf16_from_f32(float v);
float f32_from_bf16(uint16_t bits);
// One rounding from double (f16 through f32 would round twice).
uint16_t f16_from_f64(double v);

}  // namespace accel
