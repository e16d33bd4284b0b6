// Many rows rounded to int8 on a matrix unit (AMX): a tile of sixteen columns by one group meets
// sixteen rows at once. The integer sums of a group leave the tile through memory and enter the
// chains of product_int8_tile.inl, so the bits are the same. Only rows of the table that ask for
// the unit come here.

#if ACCEL_ISA_avx512
// Written as text: compilers know the instructions by flags that this object is not built with, and
// never use the tiles themselves.
#define ACCEL_TILE_LOAD(t, from, stride) \
  asm volatile("tileloadd (%0,%1,1), %%tmm" t : : "r"(from), "r"((u64)(stride)) : "memory")
#define ACCEL_TILE_STORE(t, to, stride) \
  asm volatile("tilestored %%tmm" t ", (%0,%1,1)" : : "r"(to), "r"((u64)(stride)) : "memory")
#define ACCEL_TILE_ZERO(t) asm volatile("tilezero %%tmm" t ::)
// c += a * b, b unsigned codes of int4 or signed bytes.
#define ACCEL_TILE_DOT(Int4, c, a, b)                                   \
  if (Int4) asm volatile("tdpbsud %%tmm" b ", %%tmm" a ", %%tmm" c ::); \
  else asm volatile("tdpbssd %%tmm" b ", %%tmm" a ", %%tmm" c ::)

// Rows of a block: all blocks of a chunk have one height, a multiple of four.
static ACCEL_INLINE u32 int8_matrix_rows(u32 rows) {
  const u32 blocks = up_to(rows, 16) / 16;
  return up_to((rows + blocks - 1) / blocks, 4);
}
// Bytes of K that one multiplication takes: a group of 32, half or all of a longer one.
static ACCEL_INLINE u32 int8_matrix_depth(u32 runs) {
  return runs == 1 ? 32 : 64;
}
struct Int8TileConfig {
  u8 palette, start, reserved[14];
  u16 row_bytes[16];
  u8 rows[16];
};
// Tiles 0 and 1 hold sums, 2 and 3 activations, 4 and 5 weights.
static void int8_matrix_begin(const Int8Slice& s, u32 rows) {
  Int8TileConfig c = {};
  c.palette = 1;
  const u32 height = int8_matrix_rows(rows), depth = int8_matrix_depth(s.runs);
  for (int i = 0; i < 2; ++i) {
    c.rows[i] = c.rows[i + 2] = (u8)height, c.rows[i + 4] = (u8)(depth / 4);
    c.row_bytes[i] = c.row_bytes[i + 4] = 64, c.row_bytes[i + 2] = (u16)depth;
  }
  asm volatile("ldtilecfg %0" : : "m"(c));
}
static void int8_matrix_end() {
  asm volatile("tilerelease" ::);
}

// Integer sums of a group of the rows at q, by the codes at w, in the tiles C, A and B.
#define ACCEL_GROUP_SUMS(C, A, B, to)                    \
  ACCEL_TILE_ZERO(C);                                    \
  for (u32 step_ = 0; step_ < steps; ++step_) {          \
    ACCEL_TILE_LOAD(A, q + step_ * depth, stride);       \
    ACCEL_TILE_LOAD(B, w + (u64)step_ * depth * 16, 64); \
    ACCEL_TILE_DOT(Int4, C, A, B);                       \
  }                                                      \
  ACCEL_TILE_STORE(C, to, 64)

// R rows, of which `rows` exist, by the sixteen columns from `column` on. The sums of the next
// group are under way while those of one are added up.
template <int R, bool Int4>
static void int8_matrix_block(const Int8Slice& s, u32 rows, u32 column) {
  V acc[R];
  ACCEL_UNROLL for (int r = 0; r < R; ++r) acc[r] =
      s.first || r >= (int)rows ? v_set(0.0f) : int8_load_out(s, r, column);
  const u32 depth = int8_matrix_depth(s.runs), steps = s.runs * 32 / depth;
  const u32 group = s.runs * 32, groups = s.groups;
  const char* w = s.bytes + (u64)(column / 16) * kInt8PanelBytes;
  const u64 plane = (u64)(column / 16) * kInt8PlaneFloats;
  const float *scales = s.planes.scales + plane, *offsets = s.planes.offsets + plane;
  const signed char* q = s.a.q;
  const float *step = s.a.scale, *sum = s.a.offset();
  const u64 room = s.a.room;
  const u64 stride = s.a.stride;
  int* const even = s.sums;
  int* const odd = s.sums + 256;
  ACCEL_GROUP_SUMS("0", "2", "4", even);
  for (u32 g = 0; g < groups; ++g, scales += 16, offsets += 16) {
    q += group, w += (u64)group * 16;
    if (g + 1 < groups) {
      if (g % 2) {
        ACCEL_GROUP_SUMS("0", "2", "4", even);
      } else {
        ACCEL_GROUP_SUMS("1", "3", "5", odd);
      }
    }
    const int* from = g % 2 ? odd : even;
    const V ws = v_load(scales), wb = v_load(offsets);
    ACCEL_UNROLL for (int r = 0; r < R; ++r) {
      const V whole = v_from_int(v_iload(from + 16 * r));
      acc[r] = v_fma(v_mul(ws, v_set(step[r])), whole, acc[r]);
      if (Int4) acc[r] = v_fma(wb, v_set(sum[r]), acc[r]);
    }
    step += room, sum += room;
  }
  ACCEL_UNROLL for (int r = 0; r < R; ++r) if (r < (int)rows) int8_store_out(s, r, column, acc[r]);
}

template <bool Int4>
static void int8_matrix_slice(Int8Slice s, u32 rows) {
  const Int8Activations a = s.a;
  float* const out = s.out;
  const u32 height = int8_matrix_rows(rows);
  for (u32 m = 0; m < rows; m += height) {
    s.a = int8_from(a, m, 0, 0);
    s.out = out + m * s.width;
    const u32 here = least(height, rows - m);
    for (u32 column = 0; column < s.columns; column += 16) {
      if (height == 16) int8_matrix_block<16, Int4>(s, here, column);
      else if (height == 12) int8_matrix_block<12, Int4>(s, here, column);
      else if (height == 8) int8_matrix_block<8, Int4>(s, here, column);
      else int8_matrix_block<4, Int4>(s, here, column);
    }
  }
}
enum { kInt8HasMatrix = 1 };
#else
// Tables without the unit serve the same names as they serve any rows; these are never called.
enum { kInt8HasMatrix = 0 };
static ACCEL_INLINE void int8_matrix_begin(const Int8Slice&, u32) {}
static ACCEL_INLINE void int8_matrix_end() {}
template <bool Int4>
static ACCEL_INLINE void int8_matrix_slice(const Int8Slice&, u32) {}
#endif
