// A sampling chain in one walk: scale, softmax, top-k mask, top-p mask or not, draw. Two passes
// over the logits give the sum of the softmax and a list that holds the k entries of the mask;
// everything behind works on the list, because an entry that the mask clears is +0, which changes
// no sum. Every function and every order is that of the single kernels (spec 010 section 7 has why
// no bit differs); rows for which that does not hold are left to them.

struct ChainRow {
  const float* x;
  u32 width;
  float factor;
  u32 k;
  bool nucleus;  // a top-p mask of this share
  float share, draw;
};

// An exponential is off by four units in the last place at most, so of two arguments this far apart
// the larger has the larger quotient; none of those on the list is subnormal.
static constexpr float kChainMargin = 0x1p-17f, kChainLowest = -64.0f;
enum { kChainVectors = 4, kChainWidest = 1 << 24 };

// The exponentials of the scaled logits less the maximum: their sum in lane16, and the indices of
// the entries from `bound` on. False where they are more than a batch.
static ACCEL_INLINE bool chain_pass(SelectScratch& s, const ChainRow& row, F16x most, F16x bound,
                                    float* sum, u32* count) {
  const F16x factor = splat(row.factor);
  F16x acc = splat(0.0f);
  u32 n = 0, i = 0;
  const auto collect = [&](u32 at, u32 reached) {
    for (; reached; reached &= reached - 1) s.entries[n++] = at + (u32)__builtin_ctz(reached);
  };
  for (; i + 16 * kChainVectors <= row.width; i += 16 * kChainVectors) {
    F16x d[kChainVectors];
    M16x reached[kChainVectors];
    ACCEL_UNROLL for (u32 j = 0; j < kChainVectors; ++j) {
      d[j] = load(row.x + i + 16 * j) * factor - most;
      reached[j] = bound <= d[j];
    }
    const M16x plain =
        (below_plain(d[0]) & below_plain(d[1])) & (below_plain(d[2]) & below_plain(d[3]));
    if (__builtin_expect(mask_bits(plain) == 0xffff, 1)) {
      ACCEL_UNROLL for (int j = 0; j < kChainVectors; ++j) acc = acc + below_fast(d[j]);
    } else {
      for (int j = 0; j < kChainVectors; ++j) acc = acc + below_rare(d[j]);
    }
    if (!any((reached[0] | reached[1]) | (reached[2] | reached[3]))) continue;
    if (n + 16 * kChainVectors > kBatch) return false;
    for (u32 j = 0; j < kChainVectors; ++j) collect(i + 16 * j, mask_bits(reached[j]));
  }
  for (; i < row.width; i += 16) {
    const int rest = (int)at_most(16, row.width - i);
    const F16x d = load_n(row.x + i, rest) * factor - most;
    acc = acc + select(lanes_below(rest), exp_below(d), splat(0.0f));
    if (n + 16 > kBatch) return false;
    collect(i, mask_bits((bound <= d) & lanes_below(rest)));
  }
  *sum = sum16(acc);
  *count = n;
  return true;
}

// From indices to probabilities in the masks' order: s.entries are sorted keys and indices.
static ACCEL_INLINE void chain_list(SelectScratch& s, const ChainRow& row, float most, float sum,
                                    u32 n) {
  const Divisor by = divisor(sum);
  for (u32 i = 0; i < n; i += 16) {
    const u32 lanes = (u32)at_most(16, n - i);
    float x[16] = {};
    for (u32 j = 0; j < lanes; ++j) x[j] = row.x[s.entries[i + j]];
    store(x, quotient(exp_below(load(x) * splat(row.factor) - splat(most)), by));
    for (u32 j = 0; j < lanes; ++j)
      s.entries[i + j] = (u64)key_of(x[j]) << 32 | (u32) ~(u32)s.entries[i + j];
  }
  sort_entries(s, n);
}
static inline float chain_value(u64 entry) {
  return __builtin_bit_cast(float, (u32)(entry >> 32) & 0x7fffffffu);  // none is negative
}

// The first n of the list by ascending index, index then bits, in s.spare.
static inline void chain_by_index(SelectScratch& s, u32 n) {
  for (u32 i = 0; i < n; ++i) {
    const u64 entry = (u64) ~(u32)s.entries[i] << 32 | (u32)(s.entries[i] >> 32 & 0x7fffffffu);
    u32 j = i;
    for (; j > 0 && s.spare[j - 1] > entry; --j) s.spare[j] = s.spare[j - 1];
    s.spare[j] = entry;
  }
}
static inline float chain_weight(u64 entry) {
  return __builtin_bit_cast(float, (u32)entry);
}

// The row's total in 128 lanes, as group_pass has it, of what the list keeps.
static ACCEL_INLINE float chain_total(SelectScratch& s, u32 n) {
  float* lanes = s.groups;
  for (int i = 0; i < kGroups; ++i) lanes[i] = 0.0f;
  for (u32 i = 0; i < n; ++i) {
    float& lane = lanes[(u32)(s.spare[i] >> 32) % kGroups];
    lane = lane + chain_weight(s.spare[i]);
  }
  for (int half = kGroups / 2; half >= 1; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  return lanes[0];
}
// How many of the first k the nucleus keeps; 0 where it has no target.
static inline u32 chain_nucleus(SelectScratch& s, u32 k, float share) {
  const float target = share * chain_total(s, k);
  if (!(0.0f < target)) return 0;
  float sum = 0.0f;
  u32 taken = 0;
  for (; taken < k && sum < target; ++taken) sum = sum + chain_value(s.entries[taken]);
  return taken;
}

// The draw among n entries by ascending index: running sums in blocks, as sample_row has them.
static inline u32 chain_draw(const SelectScratch& s, u32 n, u32 width, float draw) {
  const auto block_of = [&](u32 i) { return (u32)(s.spare[i] >> 32) / kSampleBlock; };
  float total = 0.0f;
  for (u32 i = 0; i < n;) {
    float block = 0.0f;
    for (const u32 first = i; i < n && block_of(i) == block_of(first); ++i)
      block = block + chain_weight(s.spare[i]);
    total = total + block;
  }
  const float target = draw * total;
  float carry = 0.0f;
  for (u32 i = 0; i < n;) {
    float block = 0.0f;
    for (const u32 first = i; i < n && block_of(i) == block_of(first); ++i) {
      block = block + chain_weight(s.spare[i]);
      if (carry + block > target) return (u32)(s.spare[i] >> 32);
    }
    carry = carry + block;
  }
  return width - 1;
}

static bool chain_walk(SelectScratch& s, const ChainRow& row, u32* token) {
  group_pass<false, true>(row.x, row.width, s.groups, splat(row.factor));
  F16x most = load(s.groups);
  for (int i = 16; i < kGroups; i += 16) most = max(load(s.groups + i), most);
  const float highest = max16(most), least = group_bound(s.groups, row.k) - highest;
  // Not so where the maximum is not finite either.
  if (!(least >= kChainLowest)) return false;
  float sum = 0.0f;
  u32 n = 0;
  if (!chain_pass(s, row, splat(highest), splat(least - kChainMargin), &sum, &n)) return false;
  if (!(sum >= 0.5f && sum <= 0x1p25f)) return false;  // NaN
  chain_list(s, row, highest, sum, n);
  u32 kept = row.k;
  chain_by_index(s, kept);
  if (row.nucleus) {
    kept = chain_nucleus(s, kept, row.share);
    if (kept == 0) return false;
    if (kept < row.k) chain_by_index(s, kept);
  }
  *token = chain_draw(s, kept, row.width, row.draw);
  return true;
}

// ---------------------------------------------------------------- the chain of sample

static u32 chain_rows(const KernelArgs* steps, u32) {
  const ElementwiseParams& scale = *(const ElementwiseParams*)steps[0].params;
  const RowsParams& top = *(const RowsParams*)steps[2].params;
  const bool whole = scale.x_block == scale.n;
  return whole && top.k <= kGroups && top.width <= kChainWidest ? top.rows : 0;
}
static bool chain_run(const KernelArgs* steps, u32 n, u32 row, u32* token, void* local) {
  const RowsParams& top = *(const RowsParams*)steps[2].params;
  ChainRow r = {};
  r.x = (const float*)steps[0].buf[0] + (u64)row * top.width;
  r.width = top.width;
  r.factor = __builtin_bit_cast(float, steps[0].scalar[0]);
  r.k = top.k;
  r.nucleus = n == 5;
  if (r.nucleus) r.share = ((const RowsParams*)steps[3].params)->p;
  r.draw = clamped_draw(((const float*)steps[n - 1].buf[1])[row]);
  return chain_walk(*(SelectScratch*)local, r, token);
}

// ---------------------------------------------------------------- the chain of sample_rows

static u32 row_chain_rows(const KernelArgs* steps, u32) {
  const RowPolicyParams& p = *(const RowPolicyParams*)steps[2].params;
  const float* factors = (const float*)steps[0].buf[1];
  const u32* ks = (const u32*)steps[2].buf[1];
  for (u32 row = 0; row < p.rows; ++row)
    if (draws_row(factors[row]) && (ks[row] == 0 || ks[row] > kGroups || ks[row] >= p.vocab))
      return 0;
  return p.vocab <= kChainWidest ? p.rows : 0;
}
static bool row_chain_run(const KernelArgs* steps, u32 n, u32 row, u32* token, void* local) {
  const RowPolicyParams& p = *(const RowPolicyParams*)steps[2].params;
  const KernelArgs& draw = steps[n - 1];
  ChainRow r = {};
  r.factor = ((const float*)steps[0].buf[1])[row];
  if (!draws_row(r.factor)) {
    *token = ((const u32*)draw.buf[3])[row];
    return true;
  }
  r.x = (const float*)steps[0].buf[0] + (u64)row * p.vocab;
  r.width = p.vocab;
  r.k = ((const u32*)steps[2].buf[1])[row];
  if (n == 5) r.share = ((const float*)steps[3].buf[1])[row];
  r.nucleus = r.share > 0.0f && r.share < 1.0f;
  r.draw = clamped_draw(((const float*)draw.buf[1])[row]);
  return chain_walk(*(SelectScratch*)local, r, token);
}
