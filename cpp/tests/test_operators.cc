// Every operator as a C++ function: results, options, several results, the caller's own line.
#include "check.h"
#include "graph/operators.h"

namespace {
using namespace accel;
namespace T = accel::tensor;

TEST(functions_record_what_they_are_given) {
  Builder b("functions");
  const Tensor x = b.input("x", DType::F32, {4, 8});
  const Tensor gain = b.weight("gain", DType::F32, {8});
  const Tensor w = b.weight("w", DType::F32, {3, 8});
  const Tensor h = T::rms_norm(b, x, gain, 1e-5f);
  const Tensor y = T::matmul(b, h, w, {.w_order = "nk"});
  CHECK(y.valid() && y.shape() == (Shape{4, 3}));
  const auto [values, indices] = T::top_k(b, y, 2);
  CHECK(values.dtype() == DType::F32 && indices.dtype() == DType::U32);
  CHECK(T::concat(b, {x, x}, 0).shape() == (Shape{8, 8}));
  CHECK(T::clamp(b, x, -1, 1).valid());
  CHECK(T::gelu(b, x, {.form = "tanh"}).valid());
  CHECK(!b.err());
}

TEST(options_of_attention_reach_it) {
  Builder b("attention");
  const Tensor q = b.input("q", DType::F32, {5, 4, 16});
  const State k = b.state("k", DType::F16, {64, 2, 16}), v = b.state("v", DType::F16, {64, 2, 16});
  T::AttentionOptions options;
  options.lengths = b.input("lengths", DType::U32, {2});
  options.query_extents = b.input("extents", DType::U32, {2});
  options.pages = b.input("pages", DType::U32, {2, 4});
  options.block = 16;
  options.scale_name = b.scalar("scale", ScalarKind::F32);
  options.window = 8;
  CHECK(T::attention(b, q, k, v, options).shape() == (Shape{5, 4, 16}));
  CHECK(!b.err());
  options.block = 0;  // pages need one
  CHECK(!T::attention(b, q, k, v, options).valid());
  CHECK(b.err().has_value());
}

TEST(a_state_and_a_result_come_together) {
  Builder b("sequences");
  const Tensor x = b.input("x", DType::F32, {4, 8});
  const State s = b.state("s", DType::F32, {2, 3, 8});
  const auto [y, next] = T::causal_conv1d(b, x, b.weight("w", DType::F32, {8, 4}), s,
                                          {.query_extents = b.input("n", DType::U32, {2})});
  CHECK(y.valid() && next.version() == s.version() + 1);
  const State written =
      T::scatter_rows(b, b.state("c", DType::F32, {9, 8}), x, b.input("ids", DType::U32, {4}));
  CHECK(written.valid());
}

TEST(a_mistake_has_the_line_of_the_call) {
  Builder b("mistakes");
  const Tensor x = b.input("x", DType::F32, {4, 8});
  const int line = __LINE__ + 1;
  CHECK(!T::softmax(b, x, {.axis = 0}).valid());
  const auto error = b.err();
  CHECK(error.has_value());
  CHECK_EQ(error->diagnostics.size(), size_t(1));
  CHECK_EQ(error->diagnostics[0].site.line, line);
  CHECK(error->diagnostics[0].site.file.ends_with("test_operators.cc"));
}

}  // namespace
