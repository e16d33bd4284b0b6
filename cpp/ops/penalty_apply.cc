// penalty_apply: repetition, presence and frequency penalties on the logits of counted tokens.
#include "ops/penalty_rules.h"

namespace accel {

static std::vector<Type> infer(const Call& c) {
  require_dtype(c, 0, DType::F32);
  require_dtype(c, 1, DType::U32);
  return {Type{DType::F32, c.in[0].shape}};
}

static void params(const Call& c, Params& p) {
  p.put(PenaltyParams{uint32_t(c.in[0].shape.elements()), 0});
}

extern const OpDef def_penalty_apply = {
    .op = Op::penalty_apply,
    .name = "penalty_apply",
    .doc =
        "Penalise the logits of tokens whose count is not zero; the others are copied bit for "
        "bit.\n\n"
        "l / rep if l > 0, l * rep if l <= 0 (skipped when rep is 0 or 1), then (l - pres) - freq "
        "* count.",
    .operands = {{"logits", "f32 [vocab]"}, {"counts", "u32 state [vocab]", SlotKind::state}},
    .attrs = {{"rep_name", AttrType::scalar_f32, "repetition"},
              {"pres_name", AttrType::scalar_f32, "presence"},
              {"freq_name", AttrType::scalar_f32, "frequency"}},
    .infer = infer,
    .params = params,
    .kernels =
        on_gpus({{Backend::cpu, "penalty_apply", always, "exact", "one pass over the vocabulary"}},
                launch_words),
    .internal = true,
};

}  // namespace accel
