// What this machine can do at this moment, measured: a yardstick for benchmarks, which no kernel
// of the library takes part in.
#pragma once
#include <cstddef>
#include <string>

namespace accel {

struct Ceilings {
  std::string level;      // the widest instruction set found
  std::string int8_unit;  // "amx", "vnni" or "avx2"; "none" where no rate is measured
  double read_gb_s;       // of memory beyond the caches
  double fma_gop_s;       // f32 multiply-add, two operations each
  double int8_gop_s;      // products of int8 summed in int32, the fastest unit; 0 for "none"
};

// Runs `threads` threads, each over memory of its own, for `seconds` a figure. Throws
// std::bad_alloc where the memory is missing, std::system_error where no thread starts.
Ceilings measure_ceilings(int threads, double seconds, size_t bytes_of_a_thread);

}  // namespace accel
