// sample_categorical and the three penalty nodes.

// ---------------------------------------------------------------- sample_categorical

// Running sums in blocks of 256: inside a block one chain from +0; block totals are added to a
// carry from +0. Phase one sums the blocks, phase two walks the carries and then one block.
enum { kSampleBlock = 256 };
struct BlockTotal {
  float total;
  u32 negative;  // a weight below zero: running sums may fall, so the shortcut over blocks does not
                 // hold
};
static inline u64 sample_blocks(const RowsParams& p) {
  return (p.width + kSampleBlock - 1) / kSampleBlock;
}
static u64 sample_shared(const void* params) {
  const RowsParams& p = *(const RowsParams*)params;
  return sizeof(BlockTotal) * p.rows * sample_blocks(p);
}
static u32 sample_chunks(const void* params, u32 threads) {
  const RowsParams& p = *(const RowsParams*)params;
  return chunks_of((u64)p.rows * p.width, kGrain, threads);
}
static ACCEL_INLINE BlockTotal block_total(const float* w, u64 n) {
  BlockTotal t = {0.0f, 0};
  for (u64 i = 0; i < n; ++i) {
    t.total = t.total + w[i];
    t.negative |= w[i] < 0.0f;
  }
  return t;
}
// Four whole blocks side by side: a chain waits for its last sum, four do not.
static ACCEL_INLINE void four_totals(const float* w, BlockTotal* t) {
  float s[4] = {};
  u32 negative[4] = {};
  for (int i = 0; i < kSampleBlock; ++i) ACCEL_UNROLL for (int b = 0; b < 4; ++b) {
      const float x = w[b * kSampleBlock + i];
      s[b] = s[b] + x;
      negative[b] |= x < 0.0f;
    }
  for (int b = 0; b < 4; ++b) t[b] = {s[b], negative[b]};
}
static void sample_totals(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const u64 blocks = sample_blocks(p), whole = p.width / kSampleBlock;
  BlockTotal* totals = (BlockTotal*)a->shared;
  const Range r = range_of(p.rows * blocks, 4, chunk, n_chunks);
  for (u64 i = r.lo; i < r.hi;) {
    const u64 block = i % blocks;
    const float* w = (const float*)a->buf[0] + i / blocks * p.width + block * kSampleBlock;
    if (block + 4 <= whole && i + 4 <= r.hi) {
      four_totals(w, totals + i);
      i += 4;
    } else {
      totals[i++] = block_total(w, at_most(kSampleBlock, p.width - block * kSampleBlock));
    }
  }
}
// The smallest index whose running sum exceeds the target, or the last index.
static u32 sample_row(const float* w, u32 width, const BlockTotal* totals, float draw) {
  const u64 blocks = (width + kSampleBlock - 1) / kSampleBlock;
  float total = 0.0f;
  u32 negative = 0;
  for (u64 b = 0; b < blocks; ++b) {
    total = total + totals[b].total;
    negative |= totals[b].negative;
  }
  const float target = draw * total;
  float carry = 0.0f;
  for (u64 b = 0; b < blocks; ++b) {
    const float next = carry + totals[b].total;
    if (next > target || negative) {
      float s = 0.0f;
      const u64 end = at_most((b + 1) * kSampleBlock, width);
      for (u64 i = b * kSampleBlock; i < end; ++i) {
        s = s + w[i];
        if (carry + s > target) return (u32)i;
      }
    }
    carry = next;
  }
  return width - 1;
}
static void sample_pick(const KernelArgs* a, u32, u32, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const u64 blocks = sample_blocks(p);
  for (u64 row = 0; row < p.rows; ++row) {
    float draw = ((const float*)a->buf[1])[row];
    draw = draw > 0.0f ? draw : 0.0f;  // NaN too
    draw = draw < 0x1.fffffep-1f ? draw : 0x1.fffffep-1f;
    ((u32*)a->buf[2])[row] = sample_row((const float*)a->buf[0] + row * p.width, p.width,
                                        (const BlockTotal*)a->shared + row * blocks, draw);
  }
}

// ---------------------------------------------------------------- penalties

static u32 vocab_chunks(const void* params, u32 threads) {
  return chunks_of(((const PenaltyParams*)params)->vocab, kGrain, threads);
}
static void penalty_clear_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const Range r = range_of(((const PenaltyParams*)a->params)->vocab, 16, chunk, n_chunks);
  __builtin_memset((u32*)a->buf[0] + r.lo, 0, 4 * (r.hi - r.lo));
}
static void penalty_count_run(const KernelArgs* a, u32, u32, void*) {
  const PenaltyParams& p = *(const PenaltyParams*)a->params;
  u32* counts = (u32*)a->buf[0];               // [vocab]
  const u32* history = (const u32*)a->buf[1];  // [history]
  const u64 n = at_most(a->scalar[0], p.history);
  for (u64 i = 0; i < n; ++i)
    if (history[i] < p.vocab) ++counts[history[i]];
}
static void penalty_apply_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const PenaltyParams& p = *(const PenaltyParams*)a->params;
  const float* logits = (const float*)a->buf[0];
  const u32* counts = (const u32*)a->buf[1];
  float* out = (float*)a->buf[2];
  const float rep = __builtin_bit_cast(float, a->scalar[0]);
  const float pres = __builtin_bit_cast(float, a->scalar[1]);
  const float freq = __builtin_bit_cast(float, a->scalar[2]);
  const bool repeats = rep != 0.0f && rep != 1.0f;
  const Range r = range_of(p.vocab, 16, chunk, n_chunks);
  for (u64 i = r.lo; i < r.hi; ++i) {
    float l = logits[i];
    if (counts[i]) {
      if (repeats) l = l > 0.0f ? l / rep : l * rep;
      l = (l - pres) - freq * (float)counts[i];
    }
    out[i] = l;
  }
}
