// Notified whenever a submission has let go of what it held: plans and buffers wait on it to become
// idle.
#pragma once
#include "exec/park.h"

namespace accel {

Event& released();

}  // namespace accel
