// The functions of shaders/shared/math against float64, within the ceilings of CONTRACT 23.2: in
// every kernel table, and as the scalar text that GPUs compile.
#include <bit>
#include <cstdlib>
#include <limits>

#include "kernels_util.h"
#include "shared/params/elementwise.h"

using namespace kernels_util;

namespace scalar {
#include "shared/math/scalar.h"

#include "shared/math/exp.h"

#include "shared/math/tanh.h"

#include "shared/math/erf.h"
#include "shared/math/log.h"
#include "shared/math/sincos.h"
}  // namespace scalar

namespace {

const float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct Function {
  const char* kernel;
  double (*exact)(double);
  float (*scalar)(float);
  double ulps;      // ceiling in units of the last place, or 0
  double absolute;  // ceiling as a distance, or 0
  double lo, hi;    // where it is swept
};
const Function kFunctions[] = {
    {"exp_f32", std::exp, scalar::math_exp, 4, 0, -110, 95},
    {"log_f32", std::log, scalar::math_log, 4, 0, 0, 4},
    {"log1p_f32", std::log1p, scalar::math_log1p, 4, 0, -1, 4},
    {"tanh_f32", std::tanh, scalar::math_tanh, 4, 0, -12, 12},
    {"erf_f32", std::erf, scalar::math_erf, 0, 0x1p-22, -6, 6},
    {"sin_f32", std::sin, scalar::math_sin, 0, 0x1p-20, -0x1p20, 0x1p20},
    {"cos_f32", std::cos, scalar::math_cos, 0, 0x1p-20, -0x1p20, 0x1p20},
};

// Distance in units of the last place of the exact value, subnormal ones included.
double ulps_between(float got, double exact) {
  const float nearest = float(exact);
  if (std::isnan(exact)) return std::isnan(got) ? 0 : 1e9;
  if (std::isinf(nearest) || std::isinf(got)) return got == nearest ? 0 : 1e9;
  const int e = std::max(exact == 0 ? -126 : std::ilogb(exact), -126);
  return std::fabs(double(got) - exact) / std::ldexp(1.0, e - 23);
}

// The sweep of one function: a grid over its range, and every exponent that lies in it.
std::vector<float> points(const Function& f) {
  std::vector<float> x;
  const int n = 200000;
  for (int i = 0; i <= n; ++i) x.push_back(float(f.lo + (f.hi - f.lo) * i / n));
  Random random(7);
  for (int e = 0; e < 255; ++e)
    for (int i = 0; i < 256; ++i) {
      const float v = float_of(uint32_t(e) << 23 | (random.next() >> 9));
      if (v >= f.lo && v <= f.hi) x.push_back(v);
      if (-v >= f.lo && -v <= f.hi) x.push_back(-v);
      if (f.lo >= -1 && f.lo <= 0) x.push_back(v);  // logarithms go on to infinity
    }
  // Near multiples of pi/2 the rest of the reduction is smallest.
  if (f.hi >= 1e6)
    for (int i = 0; i < 20000; ++i)
      x.push_back(float((random.next() % 667544) * 1.5707963267948966));
  return x;
}

std::vector<float> evaluate(const KernelTable& table, const char* name,
                            const std::vector<float>& x) {
  std::vector<float> y(x.size());
  const ElementwiseParams p = {unsigned(x.size()), unsigned(x.size()), 1, 0};
  run(find(table, name), {const_cast<float*>(x.data()), y.data()}, &p, {}, 1);
  return y;
}

TEST(p26_28_math_within_ceilings) {
  for (const KernelTable* table : tables())
    for (const Function& f : kFunctions) {
      const std::vector<float> x = points(f), y = evaluate(*table, f.kernel, x);
      double worst = 0;
      float at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const double exact = f.exact(double(x[i]));
        const double off = f.ulps ? ulps_between(y[i], exact) : std::fabs(double(y[i]) - exact);
        if (!(off <= worst)) worst = off, at = x[i];
      }
      std::printf("%-7s %-10s worst %.3g%s at %a\n", table->isa, f.kernel,
                  f.ulps ? worst : worst * 0x1p20, f.ulps ? " ulp" : " * 2^-20", double(at));
      CHECK(worst <= (f.ulps ? f.ulps : f.absolute));
      CHECK(worst > 0);
    }
}

TEST(test_math_scalar_text_equals_the_vector_text) {
  for (const KernelTable* table : tables()) {
    if (std::string(table->level) != "fma") continue;
    for (const Function& f : kFunctions) {
      std::vector<float> x = points(f);
      for (float v : {0.0f, -0.0f, kInf, -kInf, kNan, 3e38f, -3e38f, 0x1p22f, 1e30f})
        x.push_back(v);
      const std::vector<float> y = evaluate(*table, f.kernel, x);
      size_t different = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const float s = f.scalar(x[i]);
        different += bits_of(s) != bits_of(y[i]) && !(std::isnan(s) && std::isnan(y[i]));
      }
      CHECK_EQ(different, size_t(0));
    }
  }
}

TEST(test_math_special_values) {
  struct Special {
    const char* kernel;
    float x, y;
  };
  const Special cases[] = {
      {"exp_f32", 0.0f, 1.0f},
      {"exp_f32", -0.0f, 1.0f},
      {"exp_f32", kInf, kInf},
      {"exp_f32", -kInf, 0.0f},
      {"exp_f32", 89.0f, kInf},
      {"exp_f32", -104.0f, 0.0f},
      {"exp_f32", -3.4e38f, 0.0f},
      {"exp_f32", -103.0f, 0x1p-149f},
      {"exp_f32", kNan, kNan},
      {"log_f32", 0.0f, -kInf},
      {"log_f32", -0.0f, -kInf},
      {"log_f32", kInf, kInf},
      {"log_f32", -1.0f, kNan},
      {"log_f32", -kInf, kNan},
      {"log_f32", 1.0f, 0.0f},
      {"log_f32", kNan, kNan},
      {"log1p_f32", -1.0f, -kInf},
      {"log1p_f32", -2.0f, kNan},
      {"log1p_f32", kInf, kInf},
      {"log1p_f32", 0.0f, 0.0f},
      {"log1p_f32", -0.0f, -0.0f},
      {"log1p_f32", 0x1p-149f, 0x1p-149f},
      {"log1p_f32", kNan, kNan},
      {"tanh_f32", kInf, 1.0f},
      {"tanh_f32", -kInf, -1.0f},
      {"tanh_f32", -0.0f, -0.0f},
      {"tanh_f32", 0x1p-149f, 0x1p-149f},
      {"tanh_f32", kNan, kNan},
      {"erf_f32", kInf, 1.0f},
      {"erf_f32", -kInf, -1.0f},
      {"erf_f32", -0.0f, -0.0f},
      {"erf_f32", kNan, kNan},
      {"sin_f32", 0.0f, 0.0f},
      {"sin_f32", kInf, kNan},
      {"sin_f32", kNan, kNan},
      {"cos_f32", 0.0f, 1.0f},
      {"cos_f32", -kInf, kNan},
      {"cos_f32", kNan, kNan},
  };
  for (const KernelTable* table : tables())
    for (const Special& c : cases) {
      const float y = evaluate(*table, c.kernel, {c.x})[0];
      const bool same = std::isnan(c.y) ? std::isnan(y) : bits_of(y) == bits_of(c.y);
      if (!same)
        check::fail(__FILE__, __LINE__,
                    std::string(table->isa) + " " + c.kernel + " of " + check::show(c.x) + " is " +
                        check::show(y) + " and must be " + check::show(c.y));
    }
}

TEST(test_math_sin_cos_of_huge_angles_stay_in_range) {
  std::vector<float> x;
  Random random(3);
  for (int e = 147; e < 255; ++e)
    for (int i = 0; i < 64; ++i) x.push_back(float_of(uint32_t(e) << 23 | (random.next() >> 9)));
  for (const KernelTable* table : tables())
    for (const char* name : {"sin_f32", "cos_f32"})
      for (float y : evaluate(*table, name, x)) CHECK(y >= -1.0f && y <= 1.0f);
}

// The way with one power of two, everywhere that it is for.
TEST(test_exp_of_normal_results_has_the_bits_of_exp) {
  const auto same = [](float x) {
    return std::bit_cast<uint32_t>(scalar::math_exp_normal(x)) ==
           std::bit_cast<uint32_t>(scalar::math_exp(x));
  };
  for (uint32_t i = 0; i <= std::bit_cast<uint32_t>(88.0f); i += 251) {
    CHECK(same(std::bit_cast<float>(i)));
    if (std::bit_cast<float>(i) <= 87.0f) CHECK(same(-std::bit_cast<float>(i)));
  }
  CHECK(same(88.0f) && same(-87.0f) && std::isnan(scalar::math_exp_normal(kNan)));
}

}  // namespace
