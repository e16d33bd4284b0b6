// Activations that a quantized product rounds first (CONTRACT E13): f16 and bf16 round to nearest
// even and widen again; the product then is that of the rounded rows. int8 has files of its own.

enum { kWide, kAsF16, kAsBf16, kAsInt8 };  // ProductParams::activations
static ACCEL_INLINE const ProductParams* quant_params(const void* params) {
  return (const ProductParams*)params;
}

static __attribute__((unused)) bool quant_packs_alike(const void* params, const void* other) {
  const ProductParams *a = quant_params(params), *b = quant_params(other);
  return a->M == b->M && a->K == b->K && a->group == b->group && a->activations == b->activations;
}

// ---------------------------------------------------------------- f16 and bf16

static ACCEL_INLINE F16x as_f16(F16x v) {
  f16 half[16];
  store(half, v);
  return load(half);
}
static ACCEL_INLINE F16x as_bf16(F16x v) {
  const I16x whole = bits(v), odd = shr<16>(whole) & isplat(1);
  const I16x up = (whole + isplat(0x7fff) + odd) & isplat((int)0xffff0000u);
  return from_bits(select(v == v, up, isplat(0x7fc00000)));
}
template <class X>
static void round_rows(const X* x, u64 count, u32 to, float* out) {
  for (u64 i = 0; i < count; i += 16) {
    const int n = (int)at_most(16, count - i);
    const F16x v = n == 16 ? load(x + i) : load_n(x + i, n);
    const F16x r = to == kAsF16 ? as_f16(v) : as_bf16(v);
    if (n == 16) store(out + i, r);
    else store_n(out + i, r, n);
  }
}

// Rounded rows stand in the command's scratch, in front of what the product itself keeps there.
static ACCEL_INLINE u64 rounded_bytes(const void* params) {
  const ProductParams* p = quant_params(params);
  return p->activations == kWide ? 0 : round_up((u64)p->M * p->K * 4, 64);
}
// The call of the product over the rounded rows: it reads nothing but the rows and the scratch.
struct RoundedCall {
  KernelArgs args;
  void* rows;
  RoundedCall(const KernelArgs* of) : args(*of), rows(of->shared) {
    args.buf = &rows;
    args.shared = (char*)of->shared + rounded_bytes(of->params);
  }
  RoundedCall(const RoundedCall&) = delete;
};
// Rows m0 .. m1 of a chunk of the packing, rounded, then packed by pack(x, K, m0, m1, to).
template <u32 kRows, class X, class Pack>
static ACCEL_INLINE void pack_rounded(const KernelArgs* args, u32 chunk, u32 n_chunks, Pack pack) {
  const ProductParams* p = quant_params(args->params);
  const u32 blocks = up_to(p->M, kRows) / kRows;
  const u32 m0 = (u32)part_of(blocks, chunk, n_chunks) * kRows;
  const u32 m1 = least((u32)part_of(blocks, chunk + 1, n_chunks) * kRows, p->M);
  float* rows = (float*)args->shared;
  round_rows((const X*)args->buf[0] + (u64)m0 * p->K, (u64)(m1 - m0) * p->K, p->activations,
             rows + (u64)m0 * p->K);
  if (p->M == 1) return;
  pack(rows, p->K, m0, m1, (float*)((char*)args->shared + rounded_bytes(args->params)));
}
template <class X>
static void quant_nk_pack(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  if (quant_params(args->params)->activations == kWide)
    return nk_pack<X>(args, chunk, n_chunks, local);
  pack_rounded<kNkRows, X>(args, chunk, n_chunks, nk_pack_rows<float>);
}
template <class X>
static void quant_kn_pack(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  if (quant_params(args->params)->activations == kWide)
    return kn_pack<X>(args, chunk, n_chunks, local);
  pack_rounded<kKnRows, X>(args, chunk, n_chunks, kn_pack_rows<float>);
}
static u64 quant_nk_shared(const void* params) {
  return rounded_bytes(params) + nk_shared(params);
}
static u64 quant_kn_shared(const void* params) {
  return rounded_bytes(params) + kn_shared(params);
}

// A product over the rows as they are, or rounded.
template <class X, class Weight>
static void quant_nk_run(const Product& p, const KernelArgs* args, const Weight& w, const Rect& r,
                         void* local) {
  if (quant_params(args->params)->activations == kWide) return nk_run<X>(p, args, w, r, local);
  const RoundedCall call(args);
  nk_run<float>(p, &call.args, w, r, local);
}
template <class X, class Weight>
static void quant_kn_run(const Product& p, const KernelArgs* args, const Weight& w, const Rect& r,
                         void* local) {
  if (quant_params(args->params)->activations == kWide) return kn_run<X>(p, args, w, r, local);
  const RoundedCall call(args);
  kn_run<float>(p, &call.args, w, r, local);
}
