// What a draw means, for the kernel of the draw and the walk of a whole chain.
enum { kSampleBlock = 256 };  // entries whose running sum is a chain of its own
static inline float clamped_draw(float draw) {
  draw = draw > 0.0f ? draw : 0.0f;  // NaN too
  return draw < 0x1.fffffep-1f ? draw : 0x1.fffffep-1f;
}
// Above 0 and finite: the row is drawn, not the argmax taken.
static ACCEL_INLINE bool draws_row(float factor) {
  return factor > 0.0f && factor < __builtin_inff();
}
