#include "exec/data_check.h"

#include <cmath>
#include <cstdio>

namespace accel {

namespace {

constexpr uint32_t kPadding = 0xffffffff;  // an id that stands for no row

// The first bad entry of an operand, as text.
struct Bad {
  std::string what, must;  // "ids[3] is 40", "below 32, or 4294967295"
};

std::optional<Bad> bad_index(const DataRule& rule, const Call& call, const uint32_t* entries) {
  const int64_t bound = rule.bound(call), n = call.in[size_t(rule.slot)].shape.elements();
  const bool below = rule.kind == DataRule::below;
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t v = entries[i];
    if (below ? v == kPadding || v < bound : v <= bound) continue;
    return Bad{"[" + std::to_string(i) + "] is " + std::to_string(v),
               below ? "below " + std::to_string(bound) + ", or 4294967295 for padding"
                     : "at most " + std::to_string(bound)};
  }
  return std::nullopt;
}

// Pages beyond a sequence's length are not read.
std::optional<Bad> bad_page(const DataRule& rule, const Call& call, const uint32_t* entries,
                            const uint32_t* lengths) {
  const int64_t bound = rule.bound(call), block = rule.block(call);
  const int64_t sequences = call.in[size_t(rule.lengths)].shape.elements();
  const int64_t pages = call.in[size_t(rule.slot)].shape.elements() / sequences;
  for (int64_t s = 0; s < sequences; ++s)
    for (int64_t i = 0; i < pages && i * block < int64_t(lengths[s]); ++i) {
      const uint32_t v = entries[s * pages + i];
      if (v == kPadding || v < bound) continue;
      return Bad{"[" + std::to_string(s) + ", " + std::to_string(i) + "] is " + std::to_string(v),
                 "below " + std::to_string(bound) + ", or 4294967295 for padding"};
    }
  return std::nullopt;
}

std::optional<Bad> bad_sum(const DataRule& rule, const Call& call, const uint32_t* entries) {
  const int64_t bound = rule.bound(call), n = call.in[size_t(rule.slot)].shape.elements();
  uint64_t sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += entries[i];
  if (sum <= uint64_t(bound)) return std::nullopt;
  return Bad{" is " + std::to_string(sum) + " in sum", "at most " + std::to_string(bound)};
}

std::optional<Bad> bad_draw(const DataRule& rule, const Call& call, const float* entries,
                            const float* factors) {
  const int64_t n = call.in[size_t(rule.slot)].shape.elements();
  for (int64_t i = 0; i < n; ++i) {
    if (factors && !(std::isfinite(factors[i]) && factors[i] > 0)) continue;
    if (entries[i] >= 0 && entries[i] < 1) continue;
    char text[32];
    std::snprintf(text, sizeof text, "%.9g", double(entries[i]));
    return Bad{"[" + std::to_string(i) + "] is " + text, "in [0, 1)"};
  }
  return std::nullopt;
}

std::optional<Bad> first_bad(const DataRule& rule, const Call& call, void* const* operands) {
  const void* data = operands[rule.slot];
  switch (rule.kind) {
    case DataRule::below:
    case DataRule::at_most:
      return bad_index(rule, call, static_cast<const uint32_t*>(data));
    case DataRule::pages:
      return bad_page(rule, call, static_cast<const uint32_t*>(data),
                      static_cast<const uint32_t*>(operands[rule.lengths]));
    case DataRule::sum_at_most:
      return bad_sum(rule, call, static_cast<const uint32_t*>(data));
    case DataRule::unit:
      return bad_draw(
          rule, call, static_cast<const float*>(data),
          rule.factors < 0 ? nullptr : static_cast<const float*>(operands[rule.factors]));
  }
  return std::nullopt;
}

}  // namespace

std::optional<Error> check_data(const DataCheck& check, void* const* operands) {
  const Call& call = check.call;
  for (const DataRule& rule : call.def->checks) {
    if (!call.in[size_t(rule.slot)].present) continue;
    const std::optional<Bad> bad = first_bad(rule, call, operands);
    if (!bad) continue;
    const std::string operand = slots_of(*call.def, call.in.size())[size_t(rule.slot)].name;
    std::string text =
        std::string(call.def->name) + ": " + operand + bad->what + " and must be " + bad->must;
    if (!check.site.file.empty()) text += ", recorded at " + check.site.to_string();
    Error e = bind_error("data", operand, text);
    e.op = call.def->name;
    e.operand = operand;
    e.site = check.site;
    return e;
  }
  return std::nullopt;
}

}  // namespace accel
