// rope of q, and rope, cast and scatter_rows of k, and cast and scatter_rows of v, as one launch
// (shaders/rope_write.metal).
#pragma once
#include "ops/combined_launch.h"

namespace accel {

struct RopeWrite {
  const Call *rope_q = nullptr, *rope_k = nullptr;
  const Call *cast_k = nullptr, *scatter_k = nullptr;  // cast null where the state is f32
  const Call *cast_v = nullptr, *scatter_v = nullptr;  // the rows: what is cast, or is scattered
};

// False where the launch does not do it: states of other types than f32 and f16 or of two, more
// rows than scatter_rows writes in one launch, k and v of different counts, rows of a state that
// straddle those of k, operands that repeat or are too large. The caller sees to it that one call
// reads what the other writes, that nobody else does, and that what is written lies apart from what
// is read: q and its result, k, v and both states.
bool rope_write(const RopeWrite& r, const Limits& limits, CombinedLaunch& out);

}  // namespace accel
