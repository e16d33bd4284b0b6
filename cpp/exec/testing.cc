#include "exec/testing.h"

namespace accel {

BarrierTest& barrier_test() {
  static BarrierTest test;
  return test;
}

EndCounts& end_counts() {
  static EndCounts counts;
  return counts;
}

}  // namespace accel
