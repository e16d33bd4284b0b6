// In place of shaders/cuda/mma.h: matrix instructions by the layouts of fragments that the PTX ISA
// documents. Where it leaves open how products are added, this adds them one by one in f32, by
// their places in the instruction: one way of many, that tells every place from every other.
#pragma once
#include "cuda/ptx.h"

namespace emu {

// What the lanes of a warp give an instruction.
struct Exchange {
  float a[16][16], b[16][8];
  char rows[32][16];  // of matrices, by the lanes that gave their addresses
  int kind[32];
  unsigned long calls[32];  // of each lane
};
Exchange exchanges[32];

inline void meet_warp() {
  meet(warps[me->index / 32], 32);
}
// Until all lanes are at the same instruction.
inline void at_instruction(Exchange& e, int kind) {
  const unsigned lane = me->index % 32;
  e.kind[lane] = kind, ++e.calls[lane];
  meet_warp();
  for (int i = 0; i < 32; ++i)
    if (e.kind[i] != kind || e.calls[i] != e.calls[lane])
      fail("lanes of a warp part at an instruction that all must meet");
}

enum Kind { kF16, kBf16, kTf32, kLoad2, kLoad4 };

inline float half_of(u32 v, Kind kind) {
  if (kind == kF16) return float(__builtin_bit_cast(_Float16, u16(v)));
  return __uint_as_float(v << 16);
}
inline float tf32_of(u32 v) {
  if (v & 0x1fff) fail("an operand is no TF32");
  return __uint_as_float(v);
}

inline void multiply(Kind kind, float* d, const u32* a, const u32* b) {
  Exchange& e = exchanges[me->index / 32];
  const unsigned lane = me->index % 32, g = lane / 4, t = lane % 4;
  const int places = kind == kTf32 ? 8 : 16;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = g + i % 2 * 8;
    if (kind == kTf32) {
      e.a[row][t + i / 2 * 4] = tf32_of(a[i]);
      if (i < 2) e.b[t + i * 4][g] = tf32_of(b[i]);
    } else {
      for (unsigned h = 0; h < 2; ++h) {
        e.a[row][2 * t + h + i / 2 * 8] = half_of(a[i] >> 16 * h & 0xffff, kind);
        if (i < 2) e.b[2 * t + h + i * 8][g] = half_of(b[i] >> 16 * h & 0xffff, kind);
      }
    }
  }
  at_instruction(e, kind);
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned row = g + i / 2 * 8, column = 2 * t + i % 2;
    float sum = d[i];
    for (int p = 0; p < places; ++p) sum = __fmaf_rn(e.a[row][p], e.b[p][column], sum);
    d[i] = sum;
  }
  meet_warp();
}

// A lane's row is read when that lane comes, and not when all are there: the instruction orders no
// memory among lanes.
inline void load_matrices(Kind kind, u32 at, u32* to) {
  Exchange& e = exchanges[me->index / 32];
  const unsigned lane = me->index % 32;
  if (at % 16 || at + 16 > kRoomBytes) fail("a row of a matrix at a wrong place");
  memcpy(e.rows[lane], room + at, 16);
  at_instruction(e, kind);
  for (unsigned m = 0; m < (kind == kLoad4 ? 4u : 2u); ++m)
    memcpy(to + m, e.rows[8 * m + lane / 4] + lane % 4 * 4, 4);
  meet_warp();
}

}  // namespace emu

DEV void mma_f16(float* d, const u32* a, const u32* b) {
  emu::multiply(emu::kF16, d, a, b);
}
DEV void mma_bf16(float* d, const u32* a, const u32* b) {
  emu::multiply(emu::kBf16, d, a, b);
}
DEV void mma_tf32(float* d, const u32* a, const u32* b) {
  emu::multiply(emu::kTf32, d, a, b);
}
DEV void load_matrices4(u32 at, u32* to) {
  emu::load_matrices(emu::kLoad4, at, to);
}
DEV void load_matrices2(u32 at, u32* to) {
  emu::load_matrices(emu::kLoad2, at, to);
}
DEV void copy16_or_zeros(u32 to, const void* from, bool there) {
  emu::copy(to, there ? from : nullptr, 16);
}
