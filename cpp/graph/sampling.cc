// Sampling policy: host options, the counter-based stream, and the composite sample().
#include "graph/sampling.h"

#include <bit>
#include <cmath>
#include <cstdio>

namespace accel {

uint32_t ScalarValue::bits() const {
  return kind == ScalarKind::U32 ? u32 : std::bit_cast<uint32_t>(f32);
}

std::string ScalarValue::to_string() const {
  if (kind == ScalarKind::U32) return std::to_string(u32);
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", double(f32));
  return text;
}

// ---------------------------------------------------------------- stream
// SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014).

static constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;

static uint64_t finish(uint64_t z) {
  z ^= z >> 30;
  z *= 0xBF58476D1CE4E5B9;
  z ^= z >> 27;
  z *= 0x94D049BB133111EB;
  return z ^ z >> 31;
}

float Stream::draw(uint64_t step) const {
  return float(finish(seed + step * kGolden) >> 40) * 0x1p-24f;
}

Stream derive(uint64_t root, uint64_t sequence) {
  return {finish(root + (sequence + 1) * kGolden)};
}

// ---------------------------------------------------------------- options

bool SamplingOptions::penalised() const {
  const float rep = float(repetition);
  return (rep != 0 && rep != 1) || float(presence) != 0 || float(frequency) != 0;
}

static std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", v);
  return text;
}

[[noreturn]] static void bad_option(const char* name, const std::string& is,
                                    const std::string& must) {
  throw attr_error("SamplingOptions", name,
                   std::string("SamplingOptions: ") + name + " is " + is + " and must be " + must);
}

void SamplingOptions::validate() const {
  const float t = float(temperature);
  if (!std::isfinite(temperature) || !std::isfinite(t))
    bad_option("temperature", number(temperature), "finite");
  if (temperature < 0) bad_option("temperature", number(temperature), "0 or more");
  if (t != 0 && t < kMinTemperature)
    bad_option("temperature", number(temperature), "0 for greedy, or 0.001 or more");
  if (temperature != 0 && t == 0)
    bad_option("temperature", number(temperature), "0 for greedy, or 0.001 or more");
  if (t != 0 && !std::isfinite(1.0f / t))
    bad_option("temperature", number(temperature), "of finite reciprocal");
  if (top_k < 0) bad_option("top_k", std::to_string(top_k), "0 or more");
  if (top_k > kTopMaxRounds && !exact)
    bad_option("top_k", std::to_string(top_k), "at most 128; exact=True lifts the bound");
  if (!(float(top_p) >= 0 && float(top_p) <= 1)) bad_option("top_p", number(top_p), "in [0, 1]");
  for (auto [name, v] :
       {std::pair{"repetition", repetition}, {"presence", presence}, {"frequency", frequency}})
    if (!std::isfinite(float(v))) bad_option(name, number(v), "finite");
  if (float(repetition) < 0) bad_option("repetition", number(repetition), "0 or more");
}

std::map<std::string, ScalarValue> SamplingOptions::scalars(const std::string& prefix, int64_t n,
                                                            int64_t history_cap) const {
  validate();
  if (prefix.empty()) bad_option("prefix", "''", "a name");
  std::map<std::string, ScalarValue> out;
  if (!greedy()) out[prefix + ".invT"] = f32(1.0f / float(temperature));
  if (!penalised()) return out;
  if (history_cap <= 0) bad_option("history_cap", std::to_string(history_cap), "positive");
  if (history_cap > int64_t(UINT32_MAX))
    bad_option("history_cap", std::to_string(history_cap), "at most 4294967295");
  if (n < 0 || n > history_cap)
    bad_option("n", std::to_string(n),
               "in [0, " + std::to_string(history_cap) + "], the history's capacity");
  out[prefix + ".n"] = u32(uint32_t(n));
  out[prefix + ".rep"] = f32(float(repetition));
  out[prefix + ".pres"] = f32(float(presence));
  out[prefix + ".freq"] = f32(float(frequency));
  return out;
}

void declare_sampling_scalars(Builder& b, const SamplingOptions& options, const std::string& prefix,
                              Site site) {
  try {
    options.validate();
    if (prefix.empty()) bad_option("prefix", "''", "a name");
  } catch (const Error& e) {
    Builder::refuse(b.ptr(),
                    {ErrorKind::attr, "declare_sampling_scalars", e.operand,
                     "declare_sampling_scalars: " + e.diagnostics[0].message, std::move(site)});
    return;
  }
  if (!options.greedy()) b.scalar(prefix + ".invT", ScalarKind::F32, site);
  if (!options.penalised()) return;
  b.scalar(prefix + ".n", ScalarKind::U32, site);
  for (const char* name : {".rep", ".pres", ".freq"})
    b.scalar(prefix + name, ScalarKind::F32, site);
}

// ---------------------------------------------------------------- sample

namespace tensor {

namespace {

Attr scalar_attr(const std::string& name) {
  Attr a;
  a.set = true;
  a.s = name;
  return a;
}

struct Sampled {
  const Tensor& logits;
  const Tensor& draws;
  const State& history;
  const State& counts;
  const SamplingOptions& options;
};

// The first mistake of a call to sample(), as a Refusal.
void check_operands(const Sampled& s) {
  const auto refuse = [](ErrorKind kind, const char* name, const std::string& text) {
    throw Refusal{kind, name, std::string(name) + " " + text};
  };
  const bool penalised = s.options.penalised();
  for (auto [name, given] :
       {std::pair{"history", !s.history.null()}, {"counts", !s.counts.null()}}) {
    if (penalised && !given)
      refuse(ErrorKind::attr, name, "is None and must be a u32 state, since a penalty is on");
    if (!penalised && given)
      refuse(ErrorKind::attr, name, "is given and must be None, since no penalty is on");
  }
  if (s.options.greedy() && !s.draws.null())
    refuse(ErrorKind::attr, "draws", "is given and must be None: temperature is 0");
  if (!s.options.greedy() && s.draws.null())
    refuse(ErrorKind::attr, "draws", "is None and must be f32, one a row: temperature is not 0");
  if (!s.logits.valid()) return;
  const Shape& shape = s.logits.shape();
  if (shape.rank() > 2)
    refuse(ErrorKind::shape, "logits",
           "is " + shape.to_string() + " and must be [vocab] or [rows, vocab]");
  const int64_t rows = shape.elements() / shape.back();
  if (s.options.top_k > shape.back())
    refuse(ErrorKind::attr, "top_k",
           "is " + std::to_string(s.options.top_k) + " and must be at most the vocabulary, " +
               std::to_string(shape.back()));
  if (!penalised) return;
  if (rows != 1)
    refuse(ErrorKind::shape, "logits",
           "is " + shape.to_string() + " and must be one row, since a penalty is on");
  for (auto [name, state] : {std::pair{"history", &s.history}, {"counts", &s.counts}})
    if (state->valid() && state->dtype() != DType::U32)
      refuse(ErrorKind::dtype, name,
             std::string("is ") + name_of(state->dtype()) + " and must be u32");
  if (s.counts.valid() && s.counts.shape().elements() != shape.back())
    refuse(ErrorKind::shape, "counts",
           "is " + s.counts.shape().to_string() + " and must have " + std::to_string(shape.back()) +
               " entries, one a token");
}

Tensor penalised(const Sampled& s, const std::string& prefix, const Site& site) {
  const State cleared = Builder::record(Op::penalty_clear, {s.counts}, {}, site).state;
  const State counted = Builder::record(Op::penalty_count, {cleared, s.history},
                                        {{"n_name", scalar_attr(prefix + ".n")}}, site)
                            .state;
  return Builder::record(Op::penalty_apply, {s.logits, counted},
                         {{"rep_name", scalar_attr(prefix + ".rep")},
                          {"pres_name", scalar_attr(prefix + ".pres")},
                          {"freq_name", scalar_attr(prefix + ".freq")}},
                         site)
      .value();
}

}  // namespace

Tensor sample(const Tensor& logits, const Tensor& draws, const State& history, const State& counts,
              const SamplingOptions& options, const std::string& prefix, Site site) {
  BuilderPtr b = logits.builder()  ? logits.builder()
                 : draws.builder() ? draws.builder()
                                   : counts.builder();
  const auto missing = [&] {
    return Diagnostic{ErrorKind::attr, "sample", "logits",
                      "sample: logits is None and must be a tensor", site};
  };
  if (!b) throw graph_error({missing()});
  if (logits.null()) {
    Builder::refuse(b, missing());
    return Tensor::poison(b);
  }
  try {
    options.validate();
    if (prefix.empty()) bad_option("prefix", "''", "a name");
  } catch (const Error& e) {
    Builder::refuse(
        b, {ErrorKind::attr, "sample", e.operand, "sample: " + e.diagnostics[0].message, site});
    return Tensor::poison(b);
  }
  const Sampled s{logits, draws, history, counts, options};
  try {
    check_operands(s);
  } catch (const Refusal& r) {
    Builder::refuse(b, {r.kind, "sample", r.operand, "sample: " + r.message, site});
    return Tensor::poison(b);
  }
  Tensor x = options.penalised() ? penalised(s, prefix, site) : logits;
  if (options.greedy()) return Builder::record(Op::argmax, {x}, {}, site).value();
  x = Builder::record(Op::scale, {x}, {{"scalar_name", scalar_attr(prefix + ".invT")}}, site)
          .value();
  x = Builder::record(Op::softmax, {x}, {}, site).value();
  Attr keep, exact;
  keep.set = exact.set = true;
  exact.b = options.exact;
  if (options.top_k > 0) {
    keep.i = options.top_k;
    x = Builder::record(Op::top_k_mask, {x}, {{"k", keep}, {"exact", exact}}, site).value();
  }
  if (float(options.top_p) > 0) {
    keep.f = float(options.top_p);
    x = Builder::record(Op::top_p_mask, {x}, {{"p", keep}, {"exact", exact}}, site).value();
  }
  return Builder::record(Op::sample_categorical, {x, draws}, {}, site).value();
}

}  // namespace tensor
}  // namespace accel
