// Check mode: every access of a kernel is compared with who touched the byte before.
#pragma once
#include "fibers.h"
#include "order.h"

namespace emu {

// An access by a command that is no kernel.
void check_copy(const Node& n, const Buffer* b, size_t at, size_t bytes, bool write);
// Memory that is given back or handed out again has no history.
void check_forget(const char* p, size_t bytes);
// Before a dispatch.
void check_begin();

}  // namespace emu
