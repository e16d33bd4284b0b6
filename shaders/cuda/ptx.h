// What the kernels of shaders/cuda have of the machine's own instructions: copies to shared memory
// that go on by themselves, reads of what other kernels write, and conversions. A stand-in of the
// same functions runs the kernels on a host (tests/cuda/rings).
#pragma once
#include "shared/dialect.h"

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned long long u64;

// ---------------------------------------------------------------- copies and waits

DEV u32 shared_at(const void* p) {
  return u32(__cvta_generic_to_shared(p));
}
DEV void copy16(u32 to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
DEV void copy4(u32 to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
DEV void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Until no more than Pending groups of this thread's copies are on their way.
template <int Pending>
DEV void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Operands that a kernel before may have written are read by these: never out of the read-only
// cache, and never before a wait that stands in front.
DEV float now(const float* p) {
  return *(const volatile float*)p;
}
DEV u32 now(const u32* p) {
  return *(const volatile u32*)p;
}
DEV u16 now(const u16* p) {
  return *(const volatile u16*)p;
}
DEV signed char now(const signed char* p) {
  return *(const volatile signed char*)p;
}
DEV float4 now4(const float* p) {
  float4 v;
  asm volatile("ld.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p));
  return v;
}

// ---------------------------------------------------------------- conversions

DEV float f16_to_f32(u16 v) {
  float r;
  asm("{.reg .b16 h;\n mov.b16 h, %1;\n cvt.f32.f16 %0, h;}" : "=f"(r) : "h"(v));
  return r;
}
DEV void f16s_to_f32(u32 v, float* to) {
  asm("{.reg .b16 a, b;\n mov.b32 {a, b}, %2;\n cvt.f32.f16 %0, a;\n cvt.f32.f16 %1, b;}"
      : "=f"(to[0]), "=f"(to[1])
      : "r"(v));
}
DEV float through_f16(float v) {
  u16 h;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
  return f16_to_f32(h);
}
