// argmax, masks, top_k, sample_categorical and the penalty nodes of sample (CONTRACT 17, 18, E7).
// All but the penalties' values are exact, so every level walks the same f32 steps.
#include <algorithm>
#include <numeric>

#include "oracle/node.h"
#include "oracle/orders.h"

namespace accel::oracle {

// One row's entries as f32: what the operators read from storage.
static std::vector<float> row_of(std::span<const double> v, size_t begin, size_t width) {
  std::vector<float> row(width);
  for (size_t i = 0; i < width; ++i) row[i] = float(v[begin + i]);
  return row;
}

// Value descending, index ascending; -0 equals +0, NaN comes last.
static std::vector<size_t> ranking(const std::vector<float>& v) {
  std::vector<size_t> order(v.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::stable_sort(order.begin(), order.end(), [&](size_t i, size_t j) {
    if (std::isnan(v[i])) return false;
    if (std::isnan(v[j])) return true;
    return v[i] > v[j];
  });
  return order;
}

void eval_argmax(Args& a) {
  const size_t width = size_t(a.call.in[0].shape.back());
  for (size_t r = 0; r < a.out[0].size(); ++r) {
    float best = -3.4e38f;
    size_t index = 0;
    for (size_t i = 0; i < width; ++i) {
      const float v = float(a.in[0][r * width + i]);
      if (v > best) best = v, index = i;
    }
    a.out[0][r] = double(index);
  }
}

void eval_top_k_mask(Args& a) {
  const size_t width = size_t(a.call.in[0].shape.back());
  const size_t k = size_t(a.attribute("k").i);
  for (size_t begin = 0; begin < a.in[0].size(); begin += width) {
    const auto row = row_of(a.in[0], begin, width);
    const auto order = ranking(row);
    for (size_t i = 0; i < k; ++i) a.out[0][begin + order[i]] = double(row[order[i]]);
  }
}

void eval_top_k(Args& a) {
  const size_t width = size_t(a.call.in[0].shape.back()), k = size_t(a.attribute("k").i);
  for (size_t r = 0; r * k < a.out[0].size(); ++r) {
    const auto row = row_of(a.in[0], r * width, width);
    const auto order = ranking(row);
    for (size_t i = 0; i < k; ++i) {
      a.out[0][r * k + i] = double(row[order[i]]);
      a.out[1][r * k + i] = double(order[i]);
    }
  }
}

void eval_top_p_mask(Args& a) {
  const size_t width = size_t(a.call.in[0].shape.back());
  const float p = a.attribute("p").f;
  const size_t most = a.attribute("exact").b ? width : std::min(width, size_t(128));
  for (size_t begin = 0; begin < a.in[0].size(); begin += width) {
    const auto row = row_of(a.in[0], begin, width);
    const auto order = ranking(row);
    const float target = p * lane_sum(row, 128);
    float kept = 0;
    for (size_t i = 0; i < most && kept < target; ++i) {
      a.out[0][begin + order[i]] = double(row[order[i]]);
      kept += row[order[i]];
    }
  }
}

void eval_sample_categorical(Args& a) {
  const auto w = a.operand("weights"), draws = a.operand("draws");
  const size_t width = size_t(a.type("weights").shape.back());
  for (size_t r = 0; r < draws.size(); ++r)
    a.out[0][r] = double(categorical(row_of(w, r * width, width), float(draws[r])));
}

// ---------------------------------------------------------------- penalties

void eval_penalty_clear(Args& a) {
  std::fill(a.written.begin(), a.written.end(), 0.0);
}

void eval_penalty_count(Args& a) {
  const auto history = a.operand("history");
  const size_t n = std::min(size_t(a.scalar_u32("n_name")), history.size());
  for (size_t i = 0; i < n; ++i) {
    const size_t id = size_t(as_u32(history[i]));
    if (id < a.written.size()) a.written[id] += 1;
  }
}

void eval_penalty_apply(Args& a) {
  const auto logits = a.operand("logits"), counts = a.operand("counts");
  const float rep = a.scalar_f32("rep_name"), pres = a.scalar_f32("pres_name");
  const float freq = a.scalar_f32("freq_name");
  const bool off = rep == 0 || rep == 1;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double l = logits[i], count = counts[i];
    a.out[0][i] = l;
    if (count == 0) continue;
    if (a.level != Level::f64) {
      const float f = float(l), c = float(as_u32(count));
      const float repeated = off ? f : f > 0 ? f / rep : f * rep;
      a.out[0][i] = double((repeated - pres) - freq * c);
      continue;
    }
    const double repeated = off ? l : l > 0 ? l / double(rep) : l * double(rep);
    const double present = repeated - double(pres), frequent = double(freq) * double(float(count));
    a.out[0][i] = present - frequent;
    if (!a.budgets) continue;
    const double budget = (off ? 0 : kDivide * std::abs(repeated)) +
                          kU * (std::abs(present) + std::abs(frequent)) +
                          kU * std::abs(a.out[0][i]);
    a.budget[0][i] = budget * 1.0001 + 4 * kTiny;
  }
}

}  // namespace accel::oracle
