// One item of rope: a pair of a row, turned, or one value behind the rotary part as it is.
#pragma once
#include "kernel.h"
#include "float_math.h"
#include "shared/params/rope.h"

struct Turned {
  uint first, second;  // places in the row; equal where one value is copied
  float u, v;
};

// Items of a row: its pairs, then what stands behind them.
static inline uint rope_items(constant RopeParams& p) {
  return p.width - p.rotary_dim / 2;
}

// Item k of the row that x points at.
static inline Turned turned(device const float* x, device const u32* position,
                            device const float* frequencies, constant RopeParams& p, uint k) {
  const uint pairs = p.rotary_dim / 2;
  if (k >= pairs) return {pairs + k, pairs + k, x[pairs + k], 0.0f};
  const uint first = p.halves ? k : 2 * k, second = first + (p.halves ? pairs : 1);
  const float u = x[first], v = x[second];
  const float theta = float(*position) * frequencies[k];
  const float c = math_cos(theta), s = math_sin(theta);
  return {first, second, u * c - v * s, u * s + v * c};
}
