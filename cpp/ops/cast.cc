// cast: f32 to f16, f16 to f32, bf16 to f32; nearest even, NaN to 0x7e00.
#include "ops/elementwise.h"
#include "ops/gpu.h"

namespace accel {

enum { to };

static std::vector<Type> infer(const Call& c) {
  const DType from = c.in[0].dtype, into = c.attr(to).dtype;
  const std::string pair = std::string("is ") + name_of(from) + " and must be ";
  const bool ok = (from == DType::F32 && into == DType::F16) ||
                  (from == DType::F16 && into == DType::F32) ||
                  (from == DType::BF16 && into == DType::F32);
  if (!ok && from == DType::BF16)
    refuse(ErrorKind::dtype, "x",
           pair + "f32 or f16 to become " + name_of(into) + "; cast(cast(x, f32), " +
               name_of(into) + ") goes there in two steps");
  if (!ok)
    refuse(ErrorKind::dtype, "x",
           pair + "a type that becomes " + std::string(name_of(into)) +
               "; the pairs are f32 to f16, f16 to f32 and bf16 to f32");
  require_runs(c, c.in[0].shape);
  return {Type{into, c.in[0].shape}};
}

static const char* not_f32_f16(const Call& c, const Limits&) {
  return c.in[0].dtype == DType::F32 ? nullptr : "turns f32 into f16";
}
static const char* not_f16_f32(const Call& c, const Limits&) {
  return c.in[0].dtype == DType::F16 ? nullptr : "turns f16 into f32";
}
static const char* not_bf16_f32(const Call& c, const Limits&) {
  return c.in[0].dtype == DType::BF16 ? nullptr : "turns bf16 into f32";
}

extern const OpDef def_cast = {
    .op = Op::cast,
    .name = "cast",
    .doc =
        "Return x as another dtype: f32 to f16, f16 to f32, or bf16 to f32.\n\n"
        "f32 to f16 rounds to nearest even, overflows to infinity and turns NaN into 0x7e00; the "
        "others are\n"
        "exact. A cast to its own dtype returns x itself.",
    .operands = {{"x", "f32, f16 or bf16"}},
    .attrs = {{"to", AttrType::dtype, "the wanted dtype", true, true}},
    .infer = infer,
    .params = elementwise_params,
    .kernels =
        on_gpus({{Backend::cpu, "cast_f32_f16", not_f32_f16, "exact", "rounds to nearest even"},
                 {Backend::cpu, "cast_f16_f32", not_f16_f32, "exact", "widens exactly"},
                 {Backend::cpu, "cast_bf16_f32", not_bf16_f32, "exact", "widens exactly"}},
                launch_elements),
    .packs = true,
    .exact = true,
};

}  // namespace accel
