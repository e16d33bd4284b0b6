// Limits of the sampling operators that the host options share.
#pragma once

namespace accel {

inline constexpr float kMinTemperature = 1e-3f;
inline constexpr int kTopMaxRounds = 128;

}  // namespace accel
