// The slow walk of each registered accumulation order in f32 (CONTRACT 24.2): what a kernel
// must give bit for bit. Level fma rounds a * b + c once, level base twice.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "oracle/node.h"

namespace accel::oracle {

float mul_add(float a, float b, float c, Level level);

// Sums of products and of values in an order by its name.
float dot(std::string_view order, Level level, const std::vector<float>& x,
          const std::vector<float>& w);
float sum(std::string_view order, const std::vector<float>& values);
// Lane i adds values i, i + lanes, ... from +0; then the upper half of the lanes is added to the
// lower, down to one.
float lane_sum(const std::vector<float>& values, size_t lanes);
// Running sums in blocks of 256 with a carry; the first index above draw * total (CONTRACT 17).
uint32_t categorical(const std::vector<float>& weights, float draw);

// The elementary functions of shaders/shared/math at a level.
float exp_f32(float x, Level level);
float sin_f32(float x, Level level);
float cos_f32(float x, Level level);
float silu_f32(float x, Level level);
float log_f32(float x, Level level);
float tanh_f32(float x, Level level);
float sigmoid_f32(float x, Level level);
float softplus_f32(float x, Level level);
float gelu_erf_f32(float x, Level level);
float gelu_tanh_f32(float x, Level level);

// Whole rows, written into a.out[0] from begin on.
void rms_norm_f32(Args& a, const double* x, const double* gain, size_t begin, int64_t width,
                  float eps);
void l2_norm_f32(Args& a, const double* x, size_t begin, int64_t width, float eps);
void softmax_f32(Args& a, const double* x, size_t begin, int64_t width);
void log_softmax_f32(Args& a, const double* x, size_t begin, int64_t width);
// One query head of one row of attention, and what it sees.
struct AttentionRow {
  struct Seen {
    int64_t position;
    size_t at;  // where the position's key and value begin in k and v
  };
  size_t begin;  // of q and of the result
  int64_t dim;
  float scale, cap;  // cap 0: none
  bool narrow;       // operands in f16
  std::optional<float> sink;
  std::vector<Seen> seen;  // in ascending order
};
void attention_f32(Args& a, const AttentionRow& row);

}  // namespace accel::oracle
