// Sampling policy (CONTRACT 18): host options, the counter-based stream, and the composite
// sample().
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "ops/sampling_limits.h"

namespace accel {

struct ScalarValue {
  ScalarKind kind = ScalarKind::U32;
  uint32_t u32 = 0;
  float f32 = 0;
  std::string to_string() const;
  uint32_t bits() const;
};
inline ScalarValue u32(uint32_t v) {
  return {ScalarKind::U32, v, 0};
}
inline ScalarValue f32(float v) {
  return {ScalarKind::F32, 0, v};
}

struct Stream {
  uint64_t seed = 0;
  float draw(uint64_t step) const;  // in [0, 0.99999994]
};
Stream derive(uint64_t root, uint64_t sequence);

// Kept as given; every check and use is of the value rounded to f32.
struct SamplingOptions {
  double temperature = 0;
  int64_t top_k = 0;
  double top_p = 0;
  double repetition = 0, presence = 0, frequency = 0;
  bool exact = false;
  bool greedy() const { return float(temperature) == 0; }
  bool penalised() const;
  void validate() const;  // throws attr_error
  // <prefix>.invT and, if penalised, <prefix>.n .rep .pres .freq
  std::map<std::string, ScalarValue> scalars(const std::string& prefix, int64_t n = 0,
                                             int64_t history_cap = 0) const;
};

// Declares exactly the scalars of options.scalars(), in that order.
void declare_sampling_scalars(Builder& b, const SamplingOptions& options, const std::string& prefix,
                              Site = std::source_location::current());

// A policy a row (CONTRACT E4). Null fields are off; ids and values are [rows, slots], the others
// have one entry a row but for the states: history is [rows, entries] or flat, counts [rows,
// vocab].
struct RowBias {
  Tensor ids, values;
};
struct RowPenalties {
  State history, counts;
  Tensor filled, repetition, presence, frequency;
};
struct RowSampling {
  Tensor factor;  // 1/T; a value that is not finite and above 0 makes the row greedy
  Tensor top_k, top_p;
  std::optional<RowBias> bias;
  std::optional<RowPenalties> penalties;
};

namespace tensor {
// bias, penalties, scale, softmax, top-k, top-p, draw, each row by its own policy; always exact.
Tensor sample_rows(const Tensor& logits, const Tensor& draws, const RowSampling& policy,
                   Site = std::source_location::current());
// penalties, scale, softmax, top-k, top-p, draw; or penalties, argmax. draws, history and counts
// may be null.
Tensor sample(const Tensor& logits, const Tensor& draws, const State& history, const State& counts,
              const SamplingOptions& options, const std::string& prefix,
              Site = std::source_location::current());
}  // namespace tensor
}  // namespace accel
