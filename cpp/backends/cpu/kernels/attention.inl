// attention in its four forms, order attention_block128 (spec 010): blocks of 128 positions at
// multiples of 128. Score: lane16 over head_dim, then times scale, then capped. A block: m' =
// max(m, block max), alpha = exp(m - m'), e = exp(s - m'); l = alpha * l + (lane16 of e over
// position mod 16); o = alpha * o, then one chain o = fma(e, v, o) over ascending positions.
// Work comes in pieces of up to kMembers members: the pairs of row and head of one sequence and kv
// head, in which neither the first nor the last position seen ever shrinks, or the heads of one
// row. A piece of few members reads the rows of the cache where they lie, on whatever pages; one of
// many turns a block of K and widens a block of V in scratch, once for all of them. Positions that
// a member does not see are in no arithmetic of it.
#include "backends/cpu/kernels/transpose.inl"

#include "backends/cpu/kernels/exp_below.inl"

#include "backends/cpu/kernels/quotient.inl"

#include "backends/cpu/kernels/attention_math.inl"

// ---------------------------------------------------------------- what a row sees

// The sequence of a row; there is none past the sum of the extents.
static u64 attention_sequence(const KernelArgs* a, const AttentionParams& p, u64 row) {
  switch (p.form) {
    case kAttentionBatched:
      return row;
    case kAttentionRagged: {
      const u32* offsets = (const u32*)a->buf[7];  // [sequences + 1]
      u64 lo = 0, hi = p.sequences;
      while (lo < hi) {
        const u64 middle = (lo + hi) / 2;
        if (offsets[middle + 1] > row) hi = middle;
        else lo = middle + 1;
      }
      return lo;
    }
    default:
      return 0;
  }
}
// One beyond the last row of the sequence that `row` belongs to.
static u64 attention_rows_end(const KernelArgs* a, const AttentionParams& p, u64 row,
                              u64 sequence) {
  switch (p.form) {
    case kAttentionBatched:
      return row + 1;
    case kAttentionRagged:
      return sequence < p.sequences ? ((const u32*)a->buf[7])[sequence + 1] : p.rows;
    default:
      return p.rows;
  }
}
static u64 attention_length(const KernelArgs* a, const AttentionParams& p, u64 sequence) {
  if (sequence >= p.sequences) return 0;
  const u64 reach = p.block ? (u64)p.max_pages * p.block : p.capacity;
  return at_most(((const u32*)a->buf[3])[sequence], reach);
}
// The row's position and one; 0 where it stands before its sequence.
static u64 attention_after(const KernelArgs* a, const AttentionParams& p, u64 row, u64 sequence,
                           u64 length) {
  switch (p.form) {
    case kAttentionPrefill:
      return (u64)a->scalar[1] + row + 1;
    case kAttentionRagged: {
      if (sequence >= p.sequences) return 0;
      const u64 tokens = ((const u32*)a->buf[5])[sequence];
      const u64 token = row - ((const u32*)a->buf[7])[sequence];
      return length + token < tokens ? 0 : length + token + 1 - tokens;
    }
    default:
      return length;
  }
}

// ---------------------------------------------------------------- a piece

enum { kMany = 12 };  // members for which turning a block costs less than folding their scores

struct AttentionPiece {
  const KernelArgs* a;
  const AttentionParams* p;
  u64 row, head;  // of the first member
  u64 sequence;
  bool across;  // members are heads of one row; otherwise rows of one kv head, heads inside
  int members;
};
// The pair of row and head that a member is.
struct AttentionMember {
  u64 row, head, first;  // first: the kv head's first head
};
static inline AttentionMember attention_member(const AttentionPiece& piece) {
  const u64 group = piece.p->heads / piece.p->kv_heads;
  return {piece.row, piece.head, piece.head / group * group};
}
static inline void attention_next(const AttentionPiece& piece, u64 group, AttentionMember& member) {
  ++member.head;
  if (piece.across || member.head < member.first + group) return;
  ++member.row;
  member.head = member.first;
}
// One beyond the last of the members from i on that have the kv head of member i.
static inline int attention_share(const AttentionPiece& piece, int i) {
  if (!piece.across) return piece.members;
  const u64 group = piece.p->heads / piece.p->kv_heads;
  return (int)at_most(piece.members, i + group - (piece.head + i) % group);
}
static inline u64 attention_kv_head(const AttentionPiece& piece, int i) {
  const u64 group = piece.p->heads / piece.p->kv_heads;
  return piece.across ? (piece.head + i) / group : piece.head / group;
}

template <bool narrow>
static void attention_begin(const AttentionPiece& piece, const AttentionScratch& w) {
  const AttentionParams& p = *piece.p;
  const float* q = (const float*)piece.a->buf[0];  // [rows, heads, head_dim]
  const u64 padded = round_up(p.head_dim, 16);
  const u64 length = attention_length(piece.a, p, piece.sequence);
  const u64 window = (u64)p.window[1] << 32 | p.window[0], group = p.heads / p.kv_heads;
  AttentionMember member = attention_member(piece);
  for (int i = 0; i < piece.members; ++i, attention_next(piece, group, member)) {
    const float* from = q + (member.row * p.heads + member.head) * p.head_dim;
    for (u64 c = 0; c < padded; c += 16) {
      const F16x x = load_n(from + c, (int)at_most(16, p.head_dim - c));
      store(w.q + i * padded + c, narrow ? through_f16(x) : x);
      store(w.o + i * padded + c, splat(0.0f));
    }
    w.m[i] = -3.4e38f;
    w.l[i] = 0.0f;
    w.sees[i] = 0;
    const u64 after = attention_after(piece.a, p, member.row, piece.sequence, length);
    w.end[i] = at_most(length, after);
    w.begin[i] = window && after > window ? after - window : 0;
    if (w.begin[i] >= w.end[i]) w.begin[i] = ~0ull;
  }
}

static void attention_end(const AttentionPiece& piece, const AttentionScratch& w, int first,
                          int last, Range features) {
  const AttentionParams& p = *piece.p;
  const float* sinks = (const float*)piece.a->buf[6];  // [heads], or null
  float* out = (float*)piece.a->buf[8];                // [rows, heads, head_dim]
  const u64 padded = round_up(p.head_dim, 16), group = p.heads / p.kv_heads;
  AttentionMember member = attention_member(piece);
  for (int i = 0; i < first; ++i) attention_next(piece, group, member);
  for (int i = first; i < last; ++i, attention_next(piece, group, member)) {
    float l = w.l[i], alpha = 1.0f;  // 1 times o is o
    if (sinks) {
      const float m = max2(sinks[member.head], w.m[i]);
      alpha = exp_one(w.m[i] - m);
      const float scaled = alpha * l;
      l = scaled + exp_one(sinks[member.head] - m);
    }
    const Divisor by = divisor(l);
    float* to = out + (member.row * p.heads + member.head) * p.head_dim;
    for (u64 c = features.lo; c < at_most(features.hi, p.head_dim); c += 16) {
      const F16x o = quotient_signed(splat(alpha) * load(w.o + i * padded + c), by);
      store_n(to + c, w.sees[i] ? o : splat(0.0f), (int)at_most(16, p.head_dim - c));
    }
  }
}

// ---------------------------------------------------------------- rows of the cache

// Where the rows of the block at j0 lie in K or V, all kv heads, up to the position `end`, and the
// first rows of the next block. A position without a row of the cache, or past the end, gets a row
// of -0; the former loses its bit of w.live. Returns how many positions of the block have a row.
template <class T>
static int attention_locate(const AttentionPiece& piece, int slot, u64 j0, u64 end,
                            const AttentionScratch& w, const void** to) {
  const AttentionParams& p = *piece.p;
  const u64 stride = (u64)p.kv_heads * p.head_dim, n = at_most(end - j0, kBlock + kAhead);
  const T* from = (const T*)piece.a->buf[slot];
  for (int i = 0; i < kBlock / 16; ++i) w.live[i] = 0xffff;
  for (u64 i = n; i < kBlock + kAhead; ++i) to[i] = w.missing;
  if (!p.block) {
    for (u64 i = 0; i < n; ++i) to[i] = from + (j0 + i) * stride;
    return (int)at_most(n, kBlock);
  }
  const u32* pages = (const u32*)piece.a->buf[4] + piece.sequence * p.max_pages;
  u64 page = j0 / p.block, at = j0 % p.block, found = at_most(n, kBlock);
  for (u64 j = 0; j < n; ++page, at = 0) {
    const u64 run = at_most(p.block - at, n - j), row = (u64)pages[page] * p.block + at;
    const u64 have = row < p.capacity ? at_most(run, p.capacity - row) : 0;
    for (u64 i = 0; i < have; ++i) to[j + i] = from + (row + i) * stride;
    for (u64 i = j + have; i < j + run; ++i) {
      to[i] = w.missing;
      if (i >= kBlock) continue;
      w.live[i / 16] &= ~(1u << i % 16);
      --found;
    }
    j += run;
  }
  return (int)found;
}

// A block of K turned, or of V widened, into w.rows; its padding is +0.
template <class T>
static void attention_turn(const AttentionScratch& w, AttentionRows<T> k, int n) {
  for (int j = 0; j < n; j += 16)
    for (u32 c = 0; c < k.width; c += 16) {
      const int lanes = (int)at_most(16, k.width - c);
      F16x v[16];
      ACCEL_UNROLL for (int i = 0; i < 16; ++i) {
        const T* from = k.rows[j + i] + k.at + c;
        v[i] = lanes == 16 ? load(from) : load_n(from, lanes);
      }
      store_transposed(v, w.rows + c * kBlock + j, kBlock);
    }
}
template <class T>
static void attention_widen(const AttentionScratch& w, AttentionRows<T> v, int n, u64 padded) {
  for (int j = 0; j < n; ++j)
    for (u32 c = 0; c < v.width; c += 16) {
      const int lanes = (int)at_most(16, v.width - c);
      const T* from = v.rows[j] + v.at + c;
      store(w.rows + j * padded + c, lanes == 16 ? load(from) : load_n(from, lanes));
    }
}

// ---------------------------------------------------------------- a block

// Scores of members first .. last - 1 of one kv head into `scores`, a row of `stride` a member.
// `within` bounds the positions of the block.
template <class T>
static void attention_scores(const AttentionScratch& w, int first, int last, u64 j0, Range within,
                             AttentionRows<T> k, bool turned, u64 padded, F16x scale, float* scores,
                             u64 stride) {
  for (int i = first; i < last; i += kTile) {
    const int tile = last - i < kTile ? last - i : (int)kTile;
    Range seen = {attention_seen(w, i, j0).lo, attention_seen(w, i + tile - 1, j0).hi};
    if (seen.lo < within.lo) seen.lo = within.lo;
    seen.hi = at_most(seen.hi, within.hi);
    const float* q = w.q + i * padded;
    float* e = scores + i * stride;
    switch (tile + (turned ? 4 : 0)) {
      case 1:
        attention_direct<T, 1>(q, padded, k, seen, scale, e, stride);
        break;
      case 2:
        attention_direct<T, 2>(q, padded, k, seen, scale, e, stride);
        break;
      case 5:
        attention_turned<1>(q, w.rows, padded, seen, scale, e);
        break;
      case 6:
        attention_turned<2>(q, w.rows, padded, seen, scale, e);
        break;
#if ACCEL_ISA_avx512
      case 3:
        attention_direct<T, 3>(q, padded, k, seen, scale, e, stride);
        break;
      case 4:
        attention_direct<T, 4>(q, padded, k, seen, scale, e, stride);
        break;
      case 7:
        attention_turned<3>(q, w.rows, padded, seen, scale, e);
        break;
      case 8:
        attention_turned<4>(q, w.rows, padded, seen, scale, e);
        break;
#endif
    }
  }
}

template <class T, bool narrow>
static void attention_walk(const AttentionPiece& piece, const AttentionScratch& w) {
  const AttentionParams& p = *piece.p;
  const u64 padded = round_up(p.head_dim, 16);
  const F16x scale = splat(__builtin_bit_cast(float, piece.a->scalar[0]));
  const bool many = !piece.across && piece.members >= kMany;
  int first = 0;
  for (u64 j0 = 0; j0 < w.end[piece.members - 1]; j0 += kBlock) {
    int last = piece.members;
    while (w.end[first] <= j0) ++first;
    while (last > first && w.begin[last - 1] >= j0 + kBlock) --last;
    if (last == first) continue;
    const u64 end = w.end[last - 1];
    const int rows = (int)at_most(end - j0, kBlock);
    const int found = attention_locate<T>(piece, 1, j0, end, w, w.k);
    if (!found) continue;
    attention_locate<T>(piece, 2, j0, end, w, w.v);
    for (int i = first, next; i < last; i = next) {
      next = piece.across ? attention_share(piece, i) : last;
      const u64 at = attention_kv_head(piece, i) * p.head_dim;
      const AttentionRows<T> k = {(const T* const*)w.k, at, p.head_dim};
      if (many) attention_turn(w, k, rows);
      // A tile's exponentials come behind the next tile's scores: by then its maxima are known.
      const bool all = found == rows;
      const auto raise = [&](int t, int to) {
        attention_raises<narrow>(w, t, to, j0, all, p.soft_cap, w.e + t * kBlock, kBlock);
      };
      int before = i;
      for (int t = i, to; t < next; before = t, t = to) {
        to = t + kTile < next ? t + kTile : next;
        attention_scores(w, t, to, j0, {0, kBlock}, k, many, padded, scale, w.e, kBlock);
        attention_peaks(w, t, to, j0, all, p.soft_cap, w.e + t * kBlock, kBlock);
        if (before < t) raise(before, t);
      }
      raise(before, next);
    }
    for (int i = first, next; i < last; i = next) {
      next = piece.across ? attention_share(piece, i) : last;
      const u64 at = attention_kv_head(piece, i) * p.head_dim;
      const AttentionRows<T> v = {(const T* const*)w.v, at, p.head_dim};
      if (many && sizeof(T) == sizeof(float)) {
        attention_block<T, false>(w, i, next, j0, v, padded, {0, padded});
      } else if (many) {
        attention_widen(w, v, rows, padded);
        const AttentionRows<float> wide = {(const float* const*)w.staged, 0, (u32)padded};
        attention_block<float, false>(w, i, next, j0, wide, padded, {0, padded});
      } else {
        attention_block<T, true>(w, i, next, j0, v, padded, {0, padded});
      }
    }
  }
}

// ---------------------------------------------------------------- many rows

template <class T, bool narrow>
static void attention_piece(const AttentionPiece& piece, const AttentionScratch& w) {
  attention_begin<narrow>(piece, w);
  attention_walk<T, narrow>(piece, w);
  attention_end(piece, w, 0, piece.members, {0, round_up(piece.p->head_dim, 16)});
}
// Rows of sequences of their own, each with all its heads: memory is read in the order it lies in.
template <class T, bool narrow>
static void attention_batch(const KernelArgs* a, const AttentionParams& p, Range r,
                            const AttentionScratch& w) {
  for (u64 m = r.lo; m < r.hi;) {
    const u64 row = m / p.heads, head = m % p.heads;
    const u64 n = at_most(at_most(p.heads - head, r.hi - m), kMembers);
    attention_piece<T, narrow>({a, &p, row, head, row, true, (int)n}, w);
    m += n;
  }
}
template <class T, bool narrow>
static void attention_sequences(const KernelArgs* a, const AttentionParams& p, Range r,
                                const AttentionScratch& w) {
  const u64 group = p.heads / p.kv_heads, members = p.rows * group;  // of one kv head
  for (u64 m = r.lo; m < r.hi;) {
    const u64 kv_head = m / members, first = m % members, row = first / group;
    const u64 sequence = attention_sequence(a, p, row);
    const u64 end = attention_rows_end(a, p, row, sequence) * group;
    const u64 n = at_most(at_most(end - first, r.hi - m), kMembers);
    attention_piece<T, narrow>(
        {a, &p, row, kv_head * group + first % group, sequence, false, (int)n}, w);
    m += n;
  }
}

// ---------------------------------------------------------------- one row, in two phases

// Many rows of one sequence share its blocks, so few pieces are wanted; rows of many sequences
// share nothing and are of any length. One row is cut along positions for its scores, which depend
// on nothing, and then along features, whose chains run through all positions.
static u32 attention_chunks(const void* params, u32 threads) {
  const AttentionParams& p = *(const AttentionParams*)params;
  const u64 units = (u64)p.rows * p.kv_heads, members = (u64)p.rows * p.heads;
  if (p.rows == 1) return threads;
  switch (p.form) {
    case kAttentionDecode:
    case kAttentionPrefill:
      return chunks_of(members, 24, threads);
    default:
      return chunks_of(units < threads ? members : units, 1, threads);
  }
}
static u32 attention_chunks2(const void* params, u32 threads) {
  const AttentionParams& p = *(const AttentionParams*)params;
  return p.rows == 1 ? (u32)at_most(threads, (u64)p.kv_heads * ((p.head_dim + 15) / 16)) : 1;
}
// The scores of one row: [heads, reach].
static u64 attention_reach(const AttentionParams& p) {
  return round_up(p.block ? (u64)p.max_pages * p.block : p.capacity, kBlock);
}
static u64 attention_shared(const void* params) {
  const AttentionParams& p = *(const AttentionParams*)params;
  return p.rows == 1 ? 4 * p.heads * attention_reach(p) : 0;
}

// Calls of one row: its heads in pieces.
static AttentionPiece attention_heads(const KernelArgs* a, const AttentionParams& p, u64 head,
                                      u64 end) {
  const u64 n = at_most(end - head, kMembers);
  return {a, &p, 0, head, attention_sequence(a, p, 0), true, (int)n};
}

template <class T, bool narrow>
static void attention_row_scores(const AttentionPiece& piece, u32 chunk, u32 n_chunks,
                                 const AttentionScratch& w) {
  const AttentionParams& p = *piece.p;
  const u64 padded = round_up(p.head_dim, 16), reach = attention_reach(p);
  const F16x scale = splat(__builtin_bit_cast(float, piece.a->scalar[0]));
  attention_begin<narrow>(piece, w);
  const u64 begin = w.begin[0], end = w.end[0];
  if (begin >= end) return;
  const Range own = range_of(end - begin / 16 * 16, 16, chunk, n_chunks);
  const u64 lo = begin / 16 * 16 + own.lo, hi = begin / 16 * 16 + own.hi;
  for (u64 j0 = lo / kBlock * kBlock; j0 < hi; j0 += kBlock) {
    const Range within = {lo > j0 ? lo - j0 : 0, at_most(hi - j0, kBlock)};
    if (!attention_locate<T>(piece, 1, j0, hi, w, w.k)) continue;
    float* scores = (float*)piece.a->shared + piece.head * reach + j0;
    for (int i = 0, next; i < piece.members; i = next) {
      next = attention_share(piece, i);
      const u64 at = attention_kv_head(piece, i) * p.head_dim;
      const AttentionRows<T> k = {(const T* const*)w.k, at, p.head_dim};
      attention_scores(w, i, next, j0, within, k, false, padded, scale, scores, reach);
    }
  }
}

// The features of a kv head among `units`.
static inline Range attention_part(Range units, u64 kv_head, u64 padded) {
  const u64 first = kv_head * padded, lo = units.lo * 16, hi = units.hi * 16;
  return {lo > first ? lo - first : 0, hi > first ? at_most(hi - first, padded) : 0};
}
// The units are vectors of features, kv head by kv head. A chunk finds the exponentials of the
// heads that it has a part of.
template <class T, bool narrow>
static void attention_row_values(const AttentionPiece& piece, Range units,
                                 const AttentionScratch& w) {
  const AttentionParams& p = *piece.p;
  const u64 padded = round_up(p.head_dim, 16), reach = attention_reach(p);
  attention_begin<narrow>(piece, w);
  const float* scores = (const float*)piece.a->shared + piece.head * reach;
  const u64 begin = w.begin[0], end = w.end[0];
  for (u64 j0 = begin / kBlock * kBlock; j0 < end; j0 += kBlock) {
    const int rows = (int)at_most(end - j0, kBlock);
    const int found = attention_locate<T>(piece, 2, j0, end, w, w.v);
    if (!found) continue;
    for (int i = 0, next; i < piece.members; i = next) {
      next = attention_share(piece, i);
      const u64 kv_head = attention_kv_head(piece, i);
      for (int t = i, last; t < next; t = last) {
        last = t + kTile < next ? t + kTile : next;
        const float* of_tile = scores + t * reach + j0;
        attention_peaks(w, t, last, j0, found == rows, p.soft_cap, of_tile, reach);
        attention_raises<narrow>(w, t, last, j0, found == rows, p.soft_cap, of_tile, reach);
      }
      const AttentionRows<T> v = {(const T* const*)w.v, kv_head * p.head_dim, p.head_dim};
      attention_block<T, true>(w, i, next, j0, v, padded, attention_part(units, kv_head, padded));
    }
  }
  for (int i = 0, next; i < piece.members; i = next) {
    next = attention_share(piece, i);
    attention_end(piece, w, i, next, attention_part(units, attention_kv_head(piece, i), padded));
  }
}

// ---------------------------------------------------------------- the kernels

template <class T>
static AttentionScratch attention_ready(const AttentionParams& p, void* local) {
  const AttentionScratch w = attention_scratch(local, round_up(p.head_dim, 16));
  // fma(+0, -0, o) is o for every o.
  const u32 zero = sizeof(T) == 2 ? 0x80008000u : 0x80000000u;
  for (int c = 0; c < 256; ++c) ((u32*)w.missing)[c] = zero;
  return w;
}
template <class T, bool narrow>
static void attention_run(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const AttentionParams& p = *(const AttentionParams*)a->params;
  const AttentionScratch w = attention_ready<T>(p, local);
  if (p.rows == 1) {
    for (u64 head = 0; head < p.heads; head += kMembers)
      attention_row_scores<T, narrow>(attention_heads(a, p, head, p.heads), chunk, n_chunks, w);
    return;
  }
  // The heads of one row and kv head share its keys, so they stay together where there is a choice.
  const u64 group = p.heads / p.kv_heads;
  const u64 step = n_chunks <= (u64)p.rows * p.kv_heads ? group : 1;
  const Range r = range_of((u64)p.rows * p.heads, step, chunk, n_chunks);
  if (p.form == kAttentionBatched) attention_batch<T, narrow>(a, p, r, w);
  else attention_sequences<T, narrow>(a, p, r, w);
}
template <class T, bool narrow>
static void attention_run2(const KernelArgs* a, u32 chunk, u32 n_chunks, void* local) {
  const AttentionParams& p = *(const AttentionParams*)a->params;
  if (p.rows != 1) return;
  const AttentionScratch w = attention_ready<T>(p, local);
  const u64 vectors = (p.head_dim + 15) / 16, group = p.heads / p.kv_heads;
  const Range units = range_of(p.kv_heads * vectors, 1, chunk, n_chunks);
  const u64 last = (units.hi + vectors - 1) / vectors * group;
  for (u64 head = units.lo / vectors * group; head < last; head += kMembers)
    attention_row_values<T, narrow>(attention_heads(a, p, head, last), units, w);
}
