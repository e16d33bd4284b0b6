// What the three penalty nodes of sample() share.
#pragma once
#include "ops/gpu.h"
#include "ops/rules.h"
#include "shared/params/penalties.h"

namespace accel {

// A thread for each entry of the vocabulary.
inline void launch_words(const Call& c, const KernelRow& row, Launches& out) {
  launch_own(row, out, groups_of(c.in[0].shape.elements(), kGroupThreads));
}

}  // namespace accel
