// What a sum in the order matrix16 may be off by: CUDA's matrix instructions add as the hardware
// does (specs 007 section 3a).
#pragma once
#include "oracle/node.h"

namespace accel::oracle {

struct Matrix16 {
  bool three;      // x is f32: three terms of it, smallest first
  bool half;       // instructions of sixteen f16 or bf16, else of eight TF32
  double least;    // operands below this are no normal numbers of the instruction's type
  double least_x;  // and x below this has such a term
  Matrix16(DType x, DType w);

  // How many times u of the sum of magnitudes, over K products.
  double roundings(double K) const;
  // And what an operand that is not normal adds.
  double lost(double x, double w) const;
  // And what sums and products below the normal range of f32 add, over K products.
  static double tiny(double K) { return 3 * K * kTiny; }
};

}  // namespace accel::oracle
