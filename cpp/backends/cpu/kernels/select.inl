// argmax, the two masks and top_k: selections in the order (value descending, index ascending),
// where -0 equals +0 and NaN comes last.

// ---------------------------------------------------------------- argmax

// A row is cut into pieces of fixed length, so that one long row feeds several threads; the second
// phase joins the pieces in ascending order.
// Comparing is so fast that a second thread is worth waking only for a long row.
enum { kArgmaxPiece = 8192, kArgmaxGrain = 65536 };
struct Best {
  float value;
  u32 index;
};
static inline u64 argmax_pieces(const RowsParams& p) {
  return (p.width + kArgmaxPiece - 1) / kArgmaxPiece;
}
static u64 argmax_shared(const void* params) {
  const RowsParams& p = *(const RowsParams*)params;
  return sizeof(Best) * p.rows * argmax_pieces(p);
}
static u32 argmax_chunks(const void* params, u32 threads) {
  const RowsParams& p = *(const RowsParams*)params;
  const u64 pieces = p.rows * argmax_pieces(p);
  return (u32)at_most(chunks_of((u64)p.rows * p.width, kArgmaxGrain, threads), pieces);
}

// Strictly greater replaces, from -3.4e38 at index 0: the lowest index among equals, never NaN.
// Vectors take turns in four pairs of value and vector number, since each pair waits for its last
// comparison; the pairs then meet in the order (value descending, index ascending).
enum { kArgmaxPairs = 4 };
static ACCEL_INLINE Best best_of(const float* x, u32 from, u32 to) {
  F16x value[kArgmaxPairs];
  I16x number[kArgmaxPairs];
  for (int i = 0; i < kArgmaxPairs; ++i) value[i] = splat(-3.4e38f), number[i] = isplat(-1);
  const u32 vectors = (to - from) / 16, tail = (to - from) % 16;
  u32 v = 0;
  for (; v + kArgmaxPairs <= vectors; v += kArgmaxPairs)
    ACCEL_UNROLL for (int i = 0; i < kArgmaxPairs; ++i) {
      const F16x next = load(x + from + 16 * (v + (u32)i));
      const M16x more = value[i] < next;
      value[i] = select(more, next, value[i]);
      number[i] = select(more, isplat((int)v), number[i]);
    }
  for (int i = 0; v < vectors + (tail != 0); ++v, i = (i + 1) % kArgmaxPairs) {
    const int n = v < vectors ? 16 : (int)tail;
    const F16x next = load_n(x + from + 16 * v, n);
    const M16x more = (value[i] < next) & lanes_below(n);
    value[i] = select(more, next, value[i]);
    number[i] = select(more, isplat((int)(v - (u32)i)), number[i]);
  }
  Best best = {-3.4e38f, 0};
  for (int i = 0; i < kArgmaxPairs; ++i) {
    float values[16];
    int numbers[16];
    store(values, value[i]);
    istore(numbers, number[i]);
    for (int lane = 0; lane < 16; ++lane) {
      if (numbers[lane] < 0) continue;
      const u32 index = from + 16 * (u32)(numbers[lane] + i) + (u32)lane;
      if (values[lane] > best.value || (values[lane] == best.value && index < best.index))
        best = {values[lane], index};
    }
  }
  return best;
}
static void argmax_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const u64 pieces = argmax_pieces(p);
  const Range r = range_of(p.rows * pieces, 1, chunk, n_chunks);
  for (u64 i = r.lo; i < r.hi; ++i) {
    const u64 from = i % pieces * kArgmaxPiece;
    const float* x = (const float*)a->buf[0] + i / pieces * p.width;
    ((Best*)a->shared)[i] = best_of(x, (u32)from, (u32)at_most(from + kArgmaxPiece, p.width));
  }
}
static void argmax_join(const KernelArgs* a, u32, u32, void*) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const u64 pieces = argmax_pieces(p);
  for (u64 row = 0; row < p.rows; ++row) {
    const Best* part = (const Best*)a->shared + row * pieces;
    Best best = {-3.4e38f, 0};
    for (u64 i = 0; i < pieces; ++i)
      if (part[i].value > best.value) best = part[i];
    ((u32*)a->buf[1])[row] = best.index;
  }
}

// ---------------------------------------------------------------- the order

// A value as an unsigned key that grows with it: one key for both zeros, 0 for NaN.
static inline u32 key_of(float x) {
  if (x != x) return 0;
  const u32 bits = __builtin_bit_cast(u32, x + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
static ACCEL_INLINE I16x keys_of(F16x x) {
  const I16x b = bits(x + splat(0.0f));
  const I16x key = b ^ (sar<31>(b) | isplat((int)0x80000000u));
  return select(x == x, key, isplat(0));
}
// One bit a lane: lo <= key <= hi, unsigned, for the n elements from x on.
static ACCEL_INLINE u32 keys_within(const float* x, int n, u32 lo, u32 hi) {
  const I16x top = isplat((int)0x80000000u);
  const I16x key = keys_of(n == 16 ? load(x) : load_n(x, n)) - isplat((int)lo);
  const u32 out = mask_bits((isplat((int)(hi - lo)) ^ top) < (key ^ top));
  return ~out & ((1u << n) - 1u);
}

enum {
  kDigits = 4096,  // 12 bits of the key at a time: 31..20, 19..8, then the last 8
  kBatch = 4096,   // entries sorted at once
  kGroups = 128,   // of entries with equal index mod 128
};
struct SelectScratch {
  u32 counts[3][kDigits];
  u32 more[kDigits];    // a second set of counters: neighbours often share a digit
  u64 entries[kBatch];  // key, then the complement of the index: descending order is the order
  u64 spare[kBatch];
  float groups[kGroups];
};
static u64 select_local(const void*) {
  return sizeof(SelectScratch);
}

// What the walk looks for: the k-th entry, or the entry at which the sum of the values reaches the
// target.
struct Walk {
  const float* x;
  u32 width;
  u64 limit;  // entries at most
  bool by_sum;
  float target, sum;
  u64 taken;
  u32 last_index;  // of the entry taken last
  float* values;   // of top_k: the entries in their order, or null
  u32* indices;
};
// Takes one entry; false when the walk ends.
static inline bool take(Walk& w, u32 index) {
  if (w.taken == w.limit || (w.by_sum && !(w.sum < w.target))) return false;
  w.sum = w.sum + w.x[index];
  w.last_index = index;
  if (w.values) {
    w.values[w.taken] = w.x[index];
    w.indices[w.taken] = index;
  }
  ++w.taken;
  return true;
}

// Descending, by digits of 8 bits from the low end; insertion where the batch is short.
static void sort_entries(SelectScratch& s, u32 n) {
  if (n <= 64) {
    for (u32 i = 1; i < n; ++i) {
      const u64 entry = s.entries[i];
      u32 j = i;
      for (; j > 0 && s.entries[j - 1] < entry; --j) s.entries[j] = s.entries[j - 1];
      s.entries[j] = entry;
    }
    return;
  }
  // Entries were collected by ascending index, and the sort is stable, so the four digits of the
  // key are enough.
  u64 *from = s.entries, *to = s.spare;
  for (int shift = 32; shift < 64; shift += 8) {
    u32 start[257] = {};
    for (u32 i = 0; i < n; ++i) ++start[256 - (from[i] >> shift & 255)];
    for (int d = 0; d < 256; ++d) start[d + 1] += start[d];
    for (u32 i = 0; i < n; ++i) to[start[255 - (from[i] >> shift & 255)]++] = from[i];
    u64* other = from;
    from = to;
    to = other;
  }
}

// Sorts and takes the entries with keys in [lo, hi]; their number is at most kBatch.
static bool take_batch(SelectScratch& s, Walk& w, u32 lo, u32 hi) {
  u32 n = 0;
  for (u32 i = 0; i < w.width; i += 16)
    for (u32 m = keys_within(w.x + i, (int)at_most(16, w.width - i), lo, hi); m; m &= m - 1) {
      const u32 index = i + (u32)__builtin_ctz(m);
      s.entries[n++] = (u64)key_of(w.x[index]) << 32 | (u32)~index;
    }
  sort_entries(s, n);
  for (u32 i = 0; i < n; ++i)
    if (!take(w, ~(u32)s.entries[i])) return false;
  return true;
}
// Takes all entries of one key, in the order of their indices.
static bool take_equal(Walk& w, u32 key) {
  for (u32 i = 0; i < w.width; i += 16)
    for (u32 m = keys_within(w.x + i, (int)at_most(16, w.width - i), key, key); m; m &= m - 1)
      if (!take(w, i + (u32)__builtin_ctz(m))) return false;
  return true;
}

// How many entries have each first digit.
static void count_first_digits(SelectScratch& s, const Walk& w) {
  u32 *even = s.counts[0], *odd = s.more;
  __builtin_memset(even, 0, sizeof s.more);
  __builtin_memset(odd, 0, sizeof s.more);
  u32 i = 0;
  for (; i + 16 <= w.width; i += 16) {
    int digit[16];
    istore(digit, shr<20>(keys_of(load(w.x + i))));
    ACCEL_UNROLL for (int k = 0; k < 16; k += 2) {
      ++even[digit[k]];
      ++odd[digit[k + 1]];
    }
  }
  for (; i < w.width; ++i) ++even[key_of(w.x[i]) >> 20];
  for (int d = 0; d < kDigits; ++d) even[d] += odd[d];
}
// How many of the entries with keys in [lo, hi] have each digit at `shift`.
static void count_digits(u32* counts, const Walk& w, u32 lo, u32 hi, int shift, u32 digits) {
  __builtin_memset(counts, 0, digits * sizeof(u32));
  for (u32 i = 0; i < w.width; i += 16)
    for (u32 m = keys_within(w.x + i, (int)at_most(16, w.width - i), lo, hi); m; m &= m - 1)
      ++counts[key_of(w.x[i + (u32)__builtin_ctz(m)]) >> shift & (digits - 1)];
}

// Walks the entries whose key begins with `prefix`, digit by digit from the top: runs of digits
// that make up a batch are sorted; a digit with more entries than a batch is walked by its next
// digit.
static bool walk_digits(SelectScratch& s, Walk& w, int level, u32 prefix) {
  static const int shifts[3] = {20, 8, 0};
  static const u32 digits[3] = {4096, 4096, 256};
  const int shift = shifts[level];
  u32* counts = s.counts[level];
  const u32 base = level == 0 ? 0 : prefix << shifts[level - 1];
  const u32 below = shift ? (1u << shift) - 1 : 0;
  if (level == 0) count_first_digits(s, w);
  else count_digits(counts, w, base, base | ((1u << shifts[level - 1]) - 1), shift, digits[level]);
  u32 want = 128;
  for (int d = (int)digits[level] - 1; d >= 0;) {
    u32 total = 0;
    const int high = d;
    while (d >= 0 && total < want && total + counts[d] <= kBatch) total += counts[d--];
    if (total &&
        !take_batch(s, w, base | (u32)(d + 1) << shift, (base | (u32)high << shift) | below))
      return false;
    want = want < kBatch / 2 ? 2 * want : (u32)kBatch;
    if (d < 0 || counts[d] <= kBatch) continue;
    const u32 key = base | (u32)d << shift;
    if (!(level == 2 ? take_equal(w, key) : walk_digits(s, w, level + 1, key >> shift)))
      return false;
    --d;
  }
  return true;
}

// ---------------------------------------------------------------- short lists
// Most rows keep few entries. The k-th largest of the 128 group maxima is a bound that k entries at
// least reach; where they are a batch at most, sorting them takes the place of the walk.

// The maxima of the groups, of x times the factor where `scaled`, NaN passed over, and the lane sum
// of CONTRACT 23.3: 128 lanes, then lane i takes lane i + s for s = 64, 32, ..., 1.
template <bool sum, bool scaled = false>
static ACCEL_INLINE float group_pass(const float* x, u32 width, float* groups,
                                     F16x factor = splat(1.0f)) {
  F16x most[8], acc[8];
  for (int i = 0; i < 8; ++i) most[i] = splat(-__builtin_inff()), acc[i] = splat(0.0f);
  u32 c = 0;
  for (; c + kGroups <= width; c += kGroups) ACCEL_UNROLL for (int i = 0; i < 8; ++i) {
      F16x v = load(x + c + 16 * i);
      if (scaled) v = v * factor;
      most[i] = max(v, most[i]);
      if (sum) acc[i] = acc[i] + v;
    }
  for (int i = 0; c < width; ++i, c += 16) {
    const int n = (int)at_most(16, width - c);
    F16x v = load_n(x + c, n);
    if (scaled) v = v * factor;
    most[i] = select(lanes_below(n), max(v, most[i]), most[i]);
    acc[i] = acc[i] + v;
  }
  for (int i = 0; i < 8; ++i) store(groups + 16 * i, most[i]);
  for (int s = 4; s >= 1; s /= 2)
    for (int i = 0; i < s; ++i) acc[i] = acc[i] + acc[i + s];
  return sum ? sum16(acc[0]) : 0.0f;
}
// The k-th largest group maximum, 1 <= k <= kGroups: its key is found bit by bit.
static float group_bound(const float* groups, u32 k) {
  const I16x top = isplat((int)0x80000000u);
  I16x keys[8];
  for (int i = 0; i < 8; ++i) keys[i] = keys_of(load(groups + 16 * i)) ^ top;
  u32 found = 0;
  for (u32 bit = 1u << 31; bit; bit >>= 1) {
    const I16x least = isplat((int)(found | bit)) ^ top;
    u32 below = 0;
    for (int i = 0; i < 8; ++i) below += bit_count(mask_bits(keys[i] < least));
    if (kGroups - below >= k) found |= bit;
  }
  return __builtin_bit_cast(float, found >> 31 ? found & 0x7fffffffu : ~found);
}

// Collects and sorts the entries from `bound` on; false where they are more than a batch.
static bool short_list(SelectScratch& s, const float* x, u32 width, float bound, u32* count) {
  const F16x least = splat(bound);
  u32 n = 0;
  const auto collect = [&](u32 i, u32 reached) {
    for (; reached; reached &= reached - 1) {
      const u32 index = i + (u32)__builtin_ctz(reached);
      s.entries[n++] = (u64)key_of(x[index]) << 32 | (u32)~index;
    }
  };
  u32 i = 0;
  for (; i + 64 <= width; i += 64) {
    M16x m[4];
    ACCEL_UNROLL for (int j = 0; j < 4; ++j) m[j] = least <= load(x + i + 16 * j);
    if (!any((m[0] | m[1]) | (m[2] | m[3]))) continue;
    if (n + 64 > kBatch) return false;
    for (u32 j = 0; j < 4; ++j) collect(i + 16 * j, mask_bits(m[j]));
  }
  for (; i < width; i += 16) {
    const int rest = (int)at_most(16, width - i);
    if (n + 16 > kBatch) return false;
    collect(i, mask_bits((least <= load_n(x + i, rest)) & lanes_below(rest)));
  }
  sort_entries(s, n);
  *count = n;
  return true;
}
// Nothing but +0 below `bound`: such entries may be taken or not, the result is the same.
static bool zero_below(const float* x, u32 width, float bound) {
  const F16x least = splat(bound);
  I16x seen = isplat(0);
  for (u32 i = 0; i < width; i += 16) {
    const F16x v = load_n(x + i, (int)at_most(16, width - i));
    seen = seen | select(least <= v, isplat(0), bits(v));
  }
  return !any(!(seen == isplat(0)));
}
// Takes from the sorted list; true where that ends the walk: the list is all there is to take.
static bool take_list(const SelectScratch& s, Walk& w, u32 n) {
  for (u32 i = 0; i < n; ++i)
    if (!take(w, ~(u32)s.entries[i])) return true;
  return w.taken == w.limit || (w.by_sum && !(w.sum < w.target));
}

enum { kShortRow = 1024, kFirstNucleus = 40 };
// Tries the walk on short lists; s.groups holds the group maxima. false leaves w as it was.
static bool take_short(SelectScratch& s, Walk& w) {
  const Walk start = w;
  u32 n = 0;
  if (!w.by_sum) {
    if (w.limit > kGroups) return false;
    const float bound = group_bound(s.groups, (u32)w.limit);
    if (short_list(s, w.x, w.width, bound, &n) && take_list(s, w, n)) return true;
    w = start;
    return false;
  }
  // A nucleus has no count. Two bounds, of some fifty and some seven hundred entries of a row
  // without an order; no entry of +0 is wanted.
  static const u32 ranks[2] = {kFirstNucleus, kGroups};
  for (int i = 0; i < 2; ++i) {
    const float reached = group_bound(s.groups, ranks[i]);
    const float bound = reached > 0x1p-149f ? reached : 0x1p-149f;
    w = start;
    if (!short_list(s, w.x, w.width, bound, &n)) break;
    if (take_list(s, w, n)) return true;
    if (bound == 0x1p-149f) {
      if (zero_below(w.x, w.width, bound)) return true;
      break;
    }
  }
  w = start;
  return false;
}
// What take_short took, +0 elsewhere. out may be x.
static void write_short(SelectScratch& s, const Walk& w, float* out) {
  for (u64 i = 0; i < w.taken; ++i) s.spare[i] = __builtin_bit_cast(u32, w.x[~(u32)s.entries[i]]);
  __builtin_memset(out, 0, (u64)w.width * sizeof(float));
  for (u64 i = 0; i < w.taken; ++i)
    out[~(u32)s.entries[i]] = __builtin_bit_cast(float, (u32)s.spare[i]);
}

// Keeps the entries up to the one taken last, writes +0 over the others.
static void write_mask(const Walk& w, float* out) {
  if (w.taken == 0) {
    __builtin_memset(out, 0, (u64)w.width * sizeof(float));
    return;
  }
  const u32 last = key_of(w.x[w.last_index]);
  for (u32 i = 0; i < w.width; i += 16) {
    const int n = (int)at_most(16, w.width - i);
    u32 kept = last == 0xffffffffu ? 0 : keys_within(w.x + i, n, last + 1, 0xffffffffu);
    // Of equal keys, the lanes up to the last index.
    const u32 upto = w.last_index < i         ? 0
                     : w.last_index - i >= 15 ? 0xffff
                                              : (2u << (w.last_index - i)) - 1;
    if (upto) kept |= keys_within(w.x + i, n, last, last) & upto;
    const F16x x = n == 16 ? load(w.x + i) : load_n(w.x + i, n);
    const F16x y = kept == 0xffff ? x : select(lanes_of_bits(kept), x, splat(0.0f));
    if (n == 16) store(out + i, y);
    else store_n(out + i, y, n);
  }
}

// One row: by_sum takes a share of the row's total, else w.limit entries.
template <bool by_sum>
static void mask_row(SelectScratch& s, Walk& w, float share, float* out) {
  const bool wide = w.width >= kShortRow;
  if (by_sum) {
    w.by_sum = true;
    w.target = share * group_pass<true>(w.x, w.width, s.groups);
    if (!(0.0f < w.target)) return write_mask(w, out);
  } else if (wide) {
    group_pass<false>(w.x, w.width, s.groups);
  }
  if (wide && take_short(s, w)) return write_short(s, w, out);
  walk_digits(s, w, 0, 0);
  write_mask(w, out);
}

static u32 mask_chunks(const void* params, u32 threads) {
  const RowsParams& p = *(const RowsParams*)params;
  return threads < 2 ? 1 : p.rows;
}
template <bool by_sum>
static void mask_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const Range r = range_of(p.rows, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    Walk w = {};
    w.x = (const float*)a->buf[0] + row * p.width;
    w.width = p.width;
    w.limit = !by_sum ? p.k : p.exact ? p.width : 128;
    mask_row<by_sum>(*(SelectScratch*)local, w, p.p, (float*)a->buf[1] + row * p.width);
  }
}

enum { kSortedRow = 256 };
static void top_k_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const RowsParams& p = *(const RowsParams*)a->params;
  const Range r = range_of(p.rows, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    Walk w = {};
    w.x = (const float*)a->buf[0] + row * p.width;
    w.width = p.width;
    w.limit = p.k;
    w.values = (float*)a->buf[1] + row * p.k;
    w.indices = (u32*)a->buf[2] + row * p.k;
    SelectScratch& s = *(SelectScratch*)local;
    // Counting digits costs more than a short row does: it is sorted at once.
    if (p.width <= kSortedRow) {
      take_batch(s, w, 0, 0xffffffffu);
      continue;
    }
    group_pass<false>(w.x, w.width, s.groups);
    if (!take_short(s, w)) walk_digits(s, w, 0, 0);
  }
}

// ---------------------------------------------------------------- one policy a row
// The masks of sample_rows: always exact; a row whose k or p is off is copied.

static u32 row_mask_chunks(const void* params, u32 threads) {
  return threads < 2 ? 1 : ((const RowPolicyParams*)params)->rows;
}
template <bool by_sum>
static void row_mask_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const RowPolicyParams& p = *(const RowPolicyParams*)a->params;
  const Range r = range_of(p.rows, 1, chunk, n_chunks);
  for (u64 row = r.lo; row < r.hi; ++row) {
    Walk w = {};
    w.x = (const float*)a->buf[0] + row * p.vocab;
    w.width = w.limit = p.vocab;
    float* out = (float*)a->buf[2] + row * p.vocab;
    const u32 k = ((const u32*)a->buf[1])[row];
    const float share = __builtin_bit_cast(float, k);
    if (by_sum ? !(share > 0.0f && share < 1.0f) : k == 0 || k >= p.vocab) {
      __builtin_memcpy(out, w.x, 4 * (u64)p.vocab);
      continue;
    }
    if (!by_sum) w.limit = k;
    mask_row<by_sum>(*(SelectScratch*)local, w, share, out);
  }
}
