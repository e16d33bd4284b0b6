// Products of one row as one launch of CUDA's rings (shaders/cuda/ring_fused.h), with the norm in
// front of them, the residual added behind one, or swiglu of two.
#pragma once
#include "ops/combined_launch.h"

namespace accel {

struct FusedProduct {
  const Call* norm = nullptr;         // rms_norm whose result is x of all products, or null
  std::vector<const Call*> products;  // 1..3, same K, same kernel row, f32 x, one row
  const Call* swiglu = nullptr;       // of products[0] (gate) and products[1] (up), or null
  const Call* add = nullptr;  // of products[0]'s result and another f32 operand of its elements
  int residual = 0;           // the operand slot of `add` that is not the product
};

// False where no ring does it: a weight not nk or quantized another way, a bias, activations in
// int8, K too short or, with a norm, longer than x in shared memory, or no memory. `row` is the
// kernel row chosen for the products. Places: x 0, gain 1, residual 2; of part i its weight 3 + 4i,
// scales 4 + 4i, offsets 5 + 4i, result 6 + 4i; with swiglu its result at 6.
bool fused_product(const FusedProduct& f, const KernelRow& row, const Limits& limits,
                   CombinedLaunch& out);

}  // namespace accel
