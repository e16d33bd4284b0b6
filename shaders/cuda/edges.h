// Where a kernel stands in a graph.
#pragma once
#include "shared/dialect.h"

// Until what earlier kernels write is there; the next kernel may begin its own preparations. In
// front of it a kernel reads weights and their planes alone, and writes nothing. All threads pass
// it. The words are comments: the executor makes them instructions where nodes of a graph overlap
// (specs/017-cuda.md section 4). A kernel without them waits before its first instruction.
DEV void earlier_done() {
#ifdef __CUDACC__
  asm volatile("//accel: wait for earlier grids" ::: "memory");
  asm volatile("//accel: later grids may start" ::: "memory");
#endif
}
