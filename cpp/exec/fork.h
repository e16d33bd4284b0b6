// A forked child has none of the parent's threads: everything but dropping objects is refused
// there.
#pragma once
#include "base/error.h"

namespace accel {

// Watches for forks from now on; called when the first device opens.
void watch_forks();
// True in a child forked after a device was opened.
bool forked();
// Throws lost_error naming spawn in such a child.
void check_fork();
Error fork_error();

}  // namespace accel
