// gelu: by erf or by tanh, its shape rule and the kernels that implement it.
#include "ops/elementwise.h"
#include "ops/gpu.h"

namespace accel {

enum { form };

static std::vector<Type> infer(const Call& c) {
  const std::string& s = c.attr(form).s;
  std::vector<Type> result = infer_unary(c);
  if (s != "erf" && s != "tanh") refuse_attr(c, form, "'erf' or 'tanh'");
  return result;
}

template <DType T>
static const char* not_erf(const Call& c, const Limits& limits) {
  if (c.attr(form).s != "erf") return "is the form erf";
  return T == DType::F32 ? not_f32(c, limits) : not_f16(c, limits);
}
template <DType T>
static const char* not_tanh(const Call& c, const Limits& limits) {
  if (c.attr(form).s != "tanh") return "is the form tanh";
  return T == DType::F32 ? not_f32(c, limits) : not_f16(c, limits);
}

extern const OpDef def_gelu = {
    .op = Op::gelu,
    .name = "gelu",
    .doc =
        "Return 0.5 * x * (1 + erf(x / sqrt(2))), or with form='tanh'\n"
        "0.5 * x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))).\n\n"
        "f16 is evaluated in f32 and rounded once.",
    .operands = {{"x", "f32 or f16"}},
    .attrs = {{"form", AttrType::text, "'erf' or 'tanh'", false, false, "'erf'"}},
    .infer = infer,
    .params = elementwise_params,
    .kernels =
        on_gpus({{Backend::cpu, "gelu_erf_f32", not_erf<DType::F32>, "exact", "by erf in f32"},
                 {Backend::cpu, "gelu_erf_f16", not_erf<DType::F16>, "exact",
                  "by erf in f32, rounded once to f16"},
                 {Backend::cpu, "gelu_tanh_f32", not_tanh<DType::F32>, "exact", "by tanh in f32"},
                 {Backend::cpu, "gelu_tanh_f16", not_tanh<DType::F16>, "exact",
                  "by tanh in f32, rounded once to f16"}},
                launch_elements),
    .packs = true,
    .exact = false,
    .source = "Hendrycks and Gimpel, Gaussian Error Linear Units, 2016",
};

}  // namespace accel
