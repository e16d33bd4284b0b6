// Where a kernel stands in a graph.
#pragma once
#include "shared/dialect.h"

// Until what earlier kernels write is there. In front of it a kernel reads weights and their planes
// alone, and writes nothing.
DEV void earlier_done() {
  asm volatile("" ::: "memory");
}
