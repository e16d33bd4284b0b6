// matmul and linear: x f32 or f16, weights f32, f16 or bf16. Out is the slot of the result: 2 for
// matmul, 3 for linear, whose slot 2 is the bias or null.

template <int Out>
static ACCEL_INLINE Product float_product(const KernelArgs* args) {
  return product_of(args, Out == 3 ? args->buf[2] : nullptr, args->buf[Out]);
}

static bool float_packs_alike(const void* params, const void* other) {
  return shape_of(params)->M == shape_of(other)->M && shape_of(params)->K == shape_of(other)->K;
}

template <class X, class W, int Out>
static void nk_float(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = float_product<Out>(args);
  const Rect r = product_range(p, kNkRows, chunk, n_chunks);
  nk_run<X>(p, args, FloatWeight<W>{(const W*)args->buf[1]}, r, local);
}

template <class X, class W, int Out>
static void kn_float(const KernelArgs* args, u32 chunk, u32 n_chunks, void* local) {
  const Product p = float_product<Out>(args);
  const Rect r = product_range(p, kKnRows, chunk, n_chunks);
  kn_run<X>(p, args, FloatWeight<W>{(const W*)args->buf[1]}, r, local);
}
