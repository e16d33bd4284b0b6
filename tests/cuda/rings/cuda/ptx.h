// In place of shaders/cuda/ptx.h.
#pragma once
#include "device.h"
#include "shared/dialect.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned long long u64;

DEV u32 shared_at(const void* p) {
  return u32((const char*)p - room);
}
DEV void copy16(u32 to, const void* from) {
  emu::copy(to, from, 16);
}
DEV void copy4(u32 to, const void* from) {
  emu::copy(to, from, 4);
}
DEV void commit_copies() {
  emu::commit();
}
template <int Pending>
DEV void wait_copies() {
  emu::wait(Pending);
}
template <class T>
DEV T now(const T* p) {
  emu::may_read(p, sizeof(T));
  return *p;
}
DEV float4 now4(const float* p) {
  emu::may_read(p, 16);
  return *(const float4*)p;
}
DEV float f16_to_f32(u16 v) {
  return float(__builtin_bit_cast(_Float16, v));
}
DEV void f16s_to_f32(u32 v, float* to) {
  to[0] = f16_to_f32(u16(v)), to[1] = f16_to_f32(u16(v >> 16));
}
DEV float through_f16(float v) {
  return float(_Float16(v));
}
