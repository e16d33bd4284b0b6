// contiguous: one gather pass from any strided window into row-major order.
#include "shared/params/contiguous.h"
#include "ops/gpu.h"
#include "ops/rules.h"

namespace accel {

static constexpr int kMaxRank = 8;

static std::vector<Type> infer(const Call& c) {
  const In& x = c.in[0];
  if (x.shape.rank() > kMaxRank) refuse_shape(c, 0, "of rank 8 or less");
  return {Type{x.dtype, x.shape}};
}

static void params(const Call& c, Params& p) {
  const In& x = c.in[0];
  ContiguousParams out = {};
  out.n = uint32_t(x.shape.elements());
  out.rank = uint32_t(x.shape.rank());
  for (int i = 0; i < kMaxRank; ++i) {
    out.shape[i] = i < x.shape.rank() ? uint32_t(x.shape[i]) : 1;
    out.strides[i] = i < x.shape.rank() ? uint32_t(x.strides[size_t(i)]) : 0;
  }
  p.put(out);
}

static const char* not_4(const Call& c, const Limits&) {
  return size_of(c.in[0].dtype) == 4 ? nullptr : "moves 4-byte elements";
}
static const char* not_2(const Call& c, const Limits&) {
  return size_of(c.in[0].dtype) == 2 ? nullptr : "moves 2-byte elements";
}
static const char* not_1(const Call& c, const Limits&) {
  return size_of(c.in[0].dtype) == 1 ? nullptr : "moves 1-byte elements";
}

extern const OpDef def_contiguous = {
    .op = Op::contiguous,
    .name = "contiguous",
    .doc =
        "Return x itself if it is contiguous, else a row-major copy.\n\n"
        "Any dtype, rank 1 to 8.",
    .operands = {{"x", "any dtype, any view of rank 1 to 8"}},
    .attrs = {},
    .infer = infer,
    .params = params,
    .kernels = on_gpus(
        {{Backend::cpu, "contiguous_4", not_4, "exact", "gathers 4-byte elements by strides"},
         {Backend::cpu, "contiguous_2", not_2, "exact", "gathers 2-byte elements by strides"},
         {Backend::cpu, "contiguous_1", not_1, "exact", "gathers 1-byte elements by strides"}},
        launch_elements),
    .views = true,
    .exact = true,
};

}  // namespace accel
