#include "exec/testing.h"

namespace accel {

BarrierTest& barrier_test() {
  static BarrierTest test;
  return test;
}

}  // namespace accel
