// grouped_matvec and grouped_matmul (CONTRACT 14, E12): the rows of each expert against its part of
// the weight.
#include <algorithm>

#include "oracle/products.h"

namespace accel::oracle {

// The rows before each expert's end and after the one's before it, whatever the counts add up to.
static void each_expert(Args& a, const std::function<void(const Product&, int64_t expert)>& f) {
  const auto counts = a.operand("counts");
  const int64_t rows = a.type("x").shape[0], K = a.type("x").shape[1];
  const int64_t N = a.call.results[0].shape[1];
  int64_t begin = 0;
  for (int64_t e = 0; e < int64_t(counts.size()); ++e) {
    const int64_t end = std::min(begin + int64_t(counts[size_t(e)]), rows);
    f({end - begin, K, N, a.attribute("w_order").s == "nk", begin, e * K * N}, e);
    begin = end;
  }
}

// codes: a quantized weight as groups see it, or null.
static void grouped(Args& a, const WeightAt& exact, const std::function<float(int64_t)>& rounded,
                    const Int8Weight* codes) {
  const auto x = a.operand("x"), bias = a.operand("bias");
  const Narrow narrow{a.attribute("activations").s};
  each_expert(a, [&](const Product& p, int64_t expert) {
    const auto own = bias.empty() ? bias : bias.subspan(size_t(expert * p.N), size_t(p.N));
    if (narrow.type == "int8") int8_products(a, p, x, *codes, own);
    else if (a.level == Level::f64) f64_products(a, p, x, exact, own, narrow);
    else f32_products(a, p, x, rounded, own, narrow);
  });
}

static void eval(Args& a) {
  if (a.has("w")) {
    const auto w = a.operand("w");
    return grouped(
        a,
        [&](int64_t i) {
          return Weight{w[size_t(i)], 0};
        },
        [&](int64_t i) { return float(w[size_t(i)]); }, nullptr);
  }
  if (a.has("w.codes")) {
    const Int4Planes planes = int4_planes(a);
    const Int8Weight codes = int4_groups(planes);
    return grouped(
        a, [&](int64_t i) { return planes.value(i); },
        [&](int64_t i) { return planes.rounded(i, a.level); }, &codes);
  }
  const auto q = a.operand("w.quants"), s = a.operand("w.scales");
  const Int8Weight codes = int8_blocks(q, s);
  const auto value = [&](int64_t i) { return q[size_t(i)] * s[size_t(i / 32)]; };
  grouped(
      a,
      [&](int64_t i) {
        return Weight{value(i), 0};
      },
      [&](int64_t i) { return float(value(i)); }, &codes);
}

void eval_grouped_matvec(Args& a) {
  eval(a);
}
void eval_grouped_matmul(Args& a) {
  eval(a);
}

}  // namespace accel::oracle
