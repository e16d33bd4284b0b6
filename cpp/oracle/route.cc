// route and combine (CONTRACT E7).
#include <algorithm>
#include <numeric>

#include "oracle/node.h"

namespace accel::oracle {

void eval_route(Args& a) {
  const auto ids = a.operand("ids");
  const int64_t k = a.type("ids").shape[1], experts = a.attribute("experts").i;
  std::vector<size_t> slots(ids.size());
  std::iota(slots.begin(), slots.end(), size_t(0));
  const auto expert = [&](size_t s) { return std::min(int64_t(ids[s]), experts); };
  std::stable_sort(slots.begin(), slots.end(),
                   [&](size_t s, size_t t) { return expert(s) < expert(t); });
  for (size_t i = 0; i < slots.size(); ++i) {
    a.out[0][i] = double(int64_t(slots[i]) / k);
    if (expert(slots[i]) < experts) ++a.out[1][size_t(expert(slots[i]))];
    a.out[2][slots[i]] = double(i);
  }
}

void eval_combine(Args& a) {
  const auto y = a.operand("y"), inverse = a.operand("inverse"), weights = a.operand("weights");
  const int64_t tokens = a.type("weights").shape[0], k = a.type("weights").shape[1],
                width = a.type("y").shape[1];
  const auto term = [&](int64_t slot, int64_t n) {
    const int64_t row = int64_t(inverse[size_t(slot)]);
    const double value = row < tokens * k ? y[size_t(row * width + n)] : 0.0;
    return float(weights[size_t(slot)]) * float(value);
  };
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t n = 0; n < width; ++n) {
      float sum = term(t * k, n);
      for (int64_t j = 1; j < k; ++j) {
        const float product = term(t * k + j, n);
        sum = sum + product;
      }
      a.out[0][size_t(t * width + n)] = double(sum);
    }
}

}  // namespace accel::oracle
