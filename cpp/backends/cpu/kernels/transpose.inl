// Sixteen vectors turned: lane i of v[j] becomes element j of row i of `to`, `stride` apart. The
// vectors are used up.

#if ACCEL_ISA_avx512
static ACCEL_INLINE void store_transposed(F16x* v, float* to, u64 stride) {
  __m512 a[16], b[16];
  ACCEL_UNROLL for (int i = 0; i < 16; i += 4) {
    const __m512 l0 = _mm512_unpacklo_ps(v[i].p[0], v[i + 1].p[0]);
    const __m512 h0 = _mm512_unpackhi_ps(v[i].p[0], v[i + 1].p[0]);
    const __m512 l1 = _mm512_unpacklo_ps(v[i + 2].p[0], v[i + 3].p[0]);
    const __m512 h1 = _mm512_unpackhi_ps(v[i + 2].p[0], v[i + 3].p[0]);
    a[i] = _mm512_shuffle_ps(l0, l1, 0x44);  // lanes 0, 4, 8, 12 of four vectors
    a[i + 1] = _mm512_shuffle_ps(l0, l1, 0xee);
    a[i + 2] = _mm512_shuffle_ps(h0, h1, 0x44);
    a[i + 3] = _mm512_shuffle_ps(h0, h1, 0xee);
  }
  ACCEL_UNROLL for (int i = 0; i < 4; ++i) {
    b[i] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0x88);
    b[i + 4] = _mm512_shuffle_f32x4(a[i], a[i + 4], 0xdd);
    b[i + 8] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0x88);
    b[i + 12] = _mm512_shuffle_f32x4(a[i + 8], a[i + 12], 0xdd);
  }
  ACCEL_UNROLL for (int i = 0; i < 4; ++i) {
    _mm512_storeu_ps(to + i * stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0x88));
    _mm512_storeu_ps(to + (i + 8) * stride, _mm512_shuffle_f32x4(b[i], b[i + 8], 0xdd));
    _mm512_storeu_ps(to + (i + 4) * stride, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0x88));
    _mm512_storeu_ps(to + (i + 12) * stride, _mm512_shuffle_f32x4(b[i + 4], b[i + 12], 0xdd));
  }
}

#elif ACCEL_ISA_avx2
static ACCEL_INLINE void store_transposed(F16x* v, float* to, u64 stride) {
  ACCEL_UNROLL for (int part = 0; part < 2; ++part) ACCEL_UNROLL for (int j = 0; j < 16; j += 8) {
    V a[8];
    ACCEL_UNROLL for (int i = 0; i < 8; i += 4) {
      const V x0 = v[j + i].p[part], x1 = v[j + i + 1].p[part];
      const V x2 = v[j + i + 2].p[part], x3 = v[j + i + 3].p[part];
      const V l0 = _mm256_unpacklo_ps(x0, x1), h0 = _mm256_unpackhi_ps(x0, x1);
      const V l1 = _mm256_unpacklo_ps(x2, x3), h1 = _mm256_unpackhi_ps(x2, x3);
      a[i] = _mm256_shuffle_ps(l0, l1, 0x44);
      a[i + 1] = _mm256_shuffle_ps(l0, l1, 0xee);
      a[i + 2] = _mm256_shuffle_ps(h0, h1, 0x44);
      a[i + 3] = _mm256_shuffle_ps(h0, h1, 0xee);
    }
    float* row = to + 8 * part * stride + j;
    ACCEL_UNROLL for (int i = 0; i < 4; ++i) {
      v_store(row + i * stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
      v_store(row + (i + 4) * stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
    }
  }
}

#else
static ACCEL_INLINE void store_transposed(F16x* v, float* to, u64 stride) {
  for (int part = 0; part < 4; ++part)
    for (int j = 0; j < 16; j += 4) {
      const V x0 = v[j].p[part], x1 = v[j + 1].p[part];
      const V x2 = v[j + 2].p[part], x3 = v[j + 3].p[part];
      const V l0 = __builtin_shufflevector(x0, x1, 0, 4, 1, 5);
      const V h0 = __builtin_shufflevector(x0, x1, 2, 6, 3, 7);
      const V l1 = __builtin_shufflevector(x2, x3, 0, 4, 1, 5);
      const V h1 = __builtin_shufflevector(x2, x3, 2, 6, 3, 7);
      float* row = to + 4 * part * stride + j;
      v_store(row, __builtin_shufflevector(l0, l1, 0, 1, 4, 5));
      v_store(row + stride, __builtin_shufflevector(l0, l1, 2, 3, 6, 7));
      v_store(row + 2 * stride, __builtin_shufflevector(h0, h1, 0, 1, 4, 5));
      v_store(row + 3 * stride, __builtin_shufflevector(h0, h1, 2, 3, 6, 7));
    }
}
#endif
