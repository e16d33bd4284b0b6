// How work is cut into chunks. A chunk's range follows from its number and the number of chunks
// alone, and no kernel's bits depend on where a range ends.

struct Range {
  u64 lo, hi;
};
static inline u64 at_most(u64 a, u64 b) {
  return a < b ? a : b;
}
static inline u64 round_up(u64 n, u64 to) {
  return (n + to - 1) / to * to;
}

// Chunks of at least `grain` units, at most four a thread so that stealing evens out the ends.
static inline u32 chunks_of(u64 work, u64 grain, u32 threads) {
  const u64 by_grain = work / grain, by_threads = 4ull * threads;
  const u64 n = threads < 2 ? 1 : at_most(by_grain, by_threads);
  return n < 1 ? 1 : (u32)n;
}
// Part `chunk` of n units, cut at multiples of `step`.
static inline Range range_of(u64 n, u64 step, u32 chunk, u32 n_chunks) {
  const u64 steps = (n + step - 1) / step;
  const u64 lo = steps * chunk / n_chunks * step, hi = steps * (chunk + 1ull) / n_chunks * step;
  return {at_most(lo, n), at_most(hi, n)};
}
enum { kGrain = 16384 };  // elements; below this a dispatch costs more than it saves

static inline u32 one_chunk(const void*, u32) {
  return 1;
}
