// The contract between a compiled module of kernels and the emulator.
#pragma once
namespace mslrt {

struct Group {  // of one threadgroup
  void* buf[31];
  void* tg[31];
  unsigned tgid[3], tpg[3], full[3], grid[3], groups[3];
  unsigned simdgroups;
};
struct Args {  // of one thread
  const Group* g;
  unsigned tid_grid[3], tid[3];
  unsigned index, lane, sg;
};
struct Entry {
  const char* name;
  void (*call)(const Args*);
  const char* meta;  // one "kind:index:flags:name" for each argument
  unsigned max_threads;
  const unsigned* sizes;   // bytes behind each pointer or reference argument
  const unsigned* aligns;  // and their alignment
};

// What the lanes of a simdgroup handed in. The first lane that needs a reduction computes it.
struct Exchange {
  unsigned mask, reduced;
  alignas(16) char result[256];
  alignas(16) char values[32 * 64];
};
struct Seen {
  Exchange* all;
  unsigned long lane;
};

}  // namespace mslrt
