// sample_categorical, the three penalty nodes, and the nodes of sample_rows.

// ---------------------------------------------------------------- sample_categorical

// Running sums in blocks of 256: inside a block one chain from +0; block totals are added to a
// carry from +0. Phase one sums the blocks, phase two walks the carries and then one block.
enum { kSampleGrain = 65536 };  // adding is worth a second thread in long rows
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
  return chunks_of((u64)p.rows * p.width, kSampleGrain, threads);
}
// The weights of a block that are no zero, one bit each, and whether one is below zero. A chain
// that starts at +0 is not changed by a zero of either sign, so it may pass them over.
struct BlockLive {
  u32 words[kSampleBlock / 16];
  u32 count, negative;
};
static ACCEL_INLINE BlockLive block_live(const float* w, u64 n) {
  BlockLive live = {};
  const F16x zero = splat(0.0f);
  M16x negative = lanes_below(0);
  for (u64 i = 0; i < n; i += 16) {
    const F16x v = n - i >= 16 ? load(w + i) : load_n(w + i, (int)(n - i));
    live.words[i / 16] = mask_bits(!(v == zero));
    live.count += bit_count(live.words[i / 16]);
    negative = negative | (v < zero);
  }
  live.negative = any(negative);
  return live;
}
static ACCEL_INLINE float live_total(const float* w, const BlockLive& live) {
  float total = 0.0f;
  if (live.count == 0) return total;
  for (u32 v = 0; v < kSampleBlock / 16; ++v)
    for (u32 m = live.words[v]; m; m &= m - 1) total = total + w[16 * v + (u32)__builtin_ctz(m)];
  return total;
}
// Whole blocks side by side: a chain waits for its last sum, eight do not.
enum { kBlocksTogether = 8, kFewLive = 32 };
static ACCEL_INLINE void dense_totals(const float* w, BlockTotal* t) {
  float s[kBlocksTogether] = {};
  for (int i = 0; i < kSampleBlock; ++i)
    ACCEL_UNROLL for (int b = 0; b < kBlocksTogether; ++b) s[b] = s[b] + w[b * kSampleBlock + i];
  for (int b = 0; b < kBlocksTogether; ++b) t[b].total = s[b];
}
static ACCEL_INLINE void block_totals(const float* w, BlockTotal* t) {
  bool dense = false;
  for (int b = 0; b < kBlocksTogether; ++b) {
    const float* block = w + b * kSampleBlock;
    const BlockLive live = block_live(block, kSampleBlock);
    dense |= live.count > kFewLive;
    t[b] = {dense ? 0.0f : live_total(block, live), live.negative};
  }
  if (dense) dense_totals(w, t);
}
static void sample_totals(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const u64 blocks = sample_blocks(p), whole = p.width / kSampleBlock;
  BlockTotal* totals = (BlockTotal*)a->shared;
  const Range r = range_of(p.rows * blocks, kBlocksTogether, chunk, n_chunks);
  for (u64 i = r.lo; i < r.hi;) {
    const u64 block = i % blocks;
    const float* w = (const float*)a->buf[0] + i / blocks * p.width + block * kSampleBlock;
    if (block + kBlocksTogether <= whole && i + kBlocksTogether <= r.hi) {
      block_totals(w, totals + i);
      i += kBlocksTogether;
    } else {
      const BlockLive live = block_live(w, at_most(kSampleBlock, p.width - block * kSampleBlock));
      totals[i++] = {live_total(w, live), live.negative};
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
static u32 sample_of_row(const KernelArgs* a, u64 row) {
  const RowsParams& p = *(const RowsParams*)a->params;
  return sample_row((const float*)a->buf[0] + row * p.width, p.width,
                    (const BlockTotal*)a->shared + row * sample_blocks(p),
                    clamped_draw(((const float*)a->buf[1])[row]));
}
static void sample_pick(const KernelArgs* a, u32, u32, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  for (u64 row = 0; row < p.rows; ++row) ((u32*)a->buf[2])[row] = sample_of_row(a, row);
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

// ---------------------------------------------------------------- one policy a row

static u32 policy_chunks(const void* params, u32 threads) {
  const RowPolicyParams& p = *(const RowPolicyParams*)params;
  return chunks_of((u64)p.rows * p.vocab, kGrain, threads);
}
// Calls f(row, first flat index, count) for each piece of a row in a chunk of the rows' elements.
template <class F>
static ACCEL_INLINE void row_pieces(const RowPolicyParams& p, u32 chunk, u32 n_chunks, F f) {
  const Range r = range_of((u64)p.rows * p.vocab, 16, chunk, n_chunks);
  for (u64 at = r.lo; at < r.hi;) {
    const u64 row = at / p.vocab, end = at_most((row + 1) * p.vocab, r.hi);
    f(row, at, end - at);
    at = end;
  }
}

static void row_scale_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowPolicyParams& p = *(const RowPolicyParams*)a->params;
  const float* factors = (const float*)a->buf[1];  // [rows]
  row_pieces(p, chunk, n_chunks, [&](u64 row, u64 at, u64 n) {
    const F16x factor = splat(draws_row(factors[row]) ? factors[row] : 1.0f);
    const float* x = (const float*)a->buf[0] + at;
    float* out = (float*)a->buf[2] + at;
    u64 i = 0;
    for (; i + 16 <= n; i += 16) store(out + i, load(x + i) * factor);
    if (i < n) store_n(out + i, load_n(x + i, (int)(n - i)) * factor, (int)(n - i));
  });
}

static void row_bias_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowPolicyParams& p = *(const RowPolicyParams*)a->params;
  row_pieces(p, chunk, n_chunks, [&](u64 row, u64 at, u64 n) {
    float* out = (float*)a->buf[3] + at;
    __builtin_memcpy(out, (const float*)a->buf[0] + at, 4 * n);
    const u32* ids = (const u32*)a->buf[1] + row * p.slots;
    const float* values = (const float*)a->buf[2] + row * p.slots;
    const u64 first = at - row * p.vocab;
    for (u32 s = 0; s < p.slots; ++s)
      if (ids[s] >= first && ids[s] < first + n) out[ids[s] - first] += values[s];
  });
}

static u32 policy_row_chunks(const void* params, u32 threads) {
  return threads < 2 ? 1 : ((const RowPolicyParams*)params)->rows;
}
static void row_penalty_count_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowPolicyParams& p = *(const RowPolicyParams*)a->params;
  const Range r = range_of(p.rows, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    u32* counts = (u32*)a->buf[0] + row * p.vocab;
    const u32* history = (const u32*)a->buf[1] + row * p.history;
    const u64 n = at_most(((const u32*)a->buf[2])[row], p.history);
    for (u64 i = 0; i < n; ++i)
      if (history[i] < p.vocab) ++counts[history[i]];
  }
}
static ACCEL_INLINE float finite_or(float x, float otherwise) {
  return x - x == 0.0f ? x : otherwise;
}
static void row_penalty_apply_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowPolicyParams& p = *(const RowPolicyParams*)a->params;
  row_pieces(p, chunk, n_chunks, [&](u64 row, u64 at, u64 n) {
    const float* logits = (const float*)a->buf[0] + at;
    const u32* counts = (const u32*)a->buf[1] + at;
    const float given = finite_or(((const float*)a->buf[2])[row], 0.0f);
    const float rep = given > 0.0f ? given : 1.0f;  // over 1 and times 1 change no bit
    const float pres = finite_or(((const float*)a->buf[3])[row], 0.0f);
    const float freq = finite_or(((const float*)a->buf[4])[row], 0.0f);
    float* out = (float*)a->buf[5] + at;
    for (u64 i = 0; i < n; ++i) {
      float l = logits[i];
      if (counts[i]) {
        l = l > 0.0f ? l / rep : l * rep;
        l = (l - pres) - freq * (float)counts[i];
      }
      out[i] = l;
    }
  });
}

static void row_draw_pick(const KernelArgs* a, u32, u32, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  for (u64 row = 0; row < p.rows; ++row)
    ((u32*)a->buf[4])[row] = draws_row(((const float*)a->buf[2])[row])
                                 ? sample_of_row(a, row)
                                 : ((const u32*)a->buf[3])[row];
}
