// SHA-256 (FIPS 180-4) of a string of bytes.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace accel {

using Digest = std::array<uint8_t, 32>;

Digest sha256(std::string_view bytes);
// Two lower-case hex digits a byte.
std::string hex_of(const Digest& digest);

}  // namespace accel
