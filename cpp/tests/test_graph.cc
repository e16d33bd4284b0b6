// The builder: collected diagnostics, poison, views, versions of states, the rules of outputs and
// unused ports.
#include "graph/builder.h"
#include "graph/sampling.h"
#include "tests/check.h"

using namespace accel;

namespace {

Tensor call(Op op, const std::vector<Operand>& in, AttrArgs attrs = {},
            Site site = std::source_location::current()) {
  return Builder::record(op, in, std::move(attrs), std::move(site)).value();
}
Attr real(float v) {
  Attr a;
  a.set = true;
  a.f = v;
  return a;
}
Attr text(const char* v) {
  Attr a;
  a.set = true;
  a.s = v;
  return a;
}
Attr number(int64_t v) {
  Attr a;
  a.set = true;
  a.i = v;
  return a;
}

std::string first(const Builder& b) {
  const auto e = b.err();
  return e ? e->diagnostics[0].message : "";
}
bool says(const Builder& b, const char* words) {
  return first(b).find(words) != std::string::npos;
}

}  // namespace

TEST(three_mistakes_come_together_with_their_lines) {
  Builder b("model");
  Tensor x = b.input("x", DType::F32, {4, 8});
  Tensor gain = b.weight("gain", DType::F32, {7});
  const int line = __LINE__ + 1;
  Tensor y = call(Op::rms_norm, {x, gain}, {{"eps", real(1e-5f)}});
  Tensor z = call(Op::add, {x, b.input("h", DType::F16, {4, 8})});
  Tensor w = tensor::reshape(x, {5, 8});
  CHECK(!y.valid() && !z.valid() && !w.valid());
  CHECK(!call(Op::silu, {y}).valid());
  const auto e = b.err();
  CHECK(e && e->diagnostics.size() == 3);
  CHECK_EQ(
      e->diagnostics[1].message,
      std::string("reshape: shape is [5 8] with 40 elements and must have 32, as x [4 8] has"));
  CHECK_EQ(e->diagnostics[2].message, std::string("rms_norm: gain is [7] and must be [8]"));
  CHECK_EQ(e->diagnostics[2].site.line, line);
  CHECK(e->diagnostics[2].kind == ErrorKind::shape && e->diagnostics[0].kind == ErrorKind::dtype);
  CHECK_THROWS(b.finish(), Error,
               "rms_norm: gain is [7] and must be [8], recorded at test_graph.cc:");
  CHECK_THROWS(y.shape(), Error, "gain is [7]");
}

TEST(p26_07_none_is_named_even_beside_poison) {
  Builder b;
  Tensor x = b.input("x", DType::F32, {4});
  Tensor bad = b.input("x", DType::F32, {4});
  CHECK(!bad.valid());
  call(Op::add, {bad, Tensor()});
  const auto e = b.err();
  CHECK_EQ(e->diagnostics.size(), size_t(2));
  CHECK_EQ(e->diagnostics[0].message, std::string("add: y is None and must be a tensor"));
  CHECK_THROWS(call(Op::add, {Tensor(), Tensor()}), Error, "add: x is None");
  (void)x;
}

TEST(two_builders_are_named) {
  Builder a("first"), b("second");
  call(Op::add, {a.input("x", DType::F32, {4}), b.input("y", DType::F32, {4})});
  CHECK(says(a, "y is of builder 'second' and must be of builder 'first'"));
  CHECK(!b.err());
}

TEST(views_move_strides_alone) {
  Builder b;
  Tensor x = b.input("x", DType::F32, {4, 6, 8});
  Tensor t = tensor::transpose(x, 0, -1);
  CHECK(t.view().shape == (Shape{8, 6, 4}) && t.view().strides == (Strides{1, 8, 48}));
  Tensor s = tensor::slice(t, 1, 2, 5);
  CHECK_EQ(s.view().offset, 16);
  CHECK(tensor::permute(x, {2, 0, 1}).view().strides == (Strides{1, 48, 8}));
  CHECK(tensor::broadcast(tensor::reshape(x, {1, 192}), {3, 2, 192}).view().strides ==
        (Strides{0, 0, 1}));
  CHECK(!b.err());
  tensor::reshape(t, {192});
  CHECK(says(b, "contiguous(x) makes it so"));
}

TEST(p26_13_packing_is_decided_by_strides) {
  Builder b;
  Tensor x = b.input("x", DType::F32, {4, 8}), row = b.input("row", DType::F32, {8});
  CHECK(call(Op::add, {x, row}).valid());
  CHECK(call(Op::add, {x, tensor::broadcast(row, {4, 8})}).valid());
  CHECK(call(Op::silu, {tensor::slice(x, 0, 1, 3)}).valid());
  CHECK(!b.err());
  call(Op::add, {x, b.input("column", DType::F32, {4, 1})});
  CHECK(says(b, "contiguous(broadcast(y, [4, 8])) makes it so"));
  Builder c;
  call(Op::silu, {tensor::transpose(c.input("x", DType::F32, {4, 8}), 0, 1)});
  CHECK(says(c, "contiguous(x) makes it so"));
}

TEST(p26_10_states_know_their_versions) {
  Builder b;
  State k = b.state("k", DType::F32, {2, 4, 8});
  Tensor rows = b.input("rows", DType::F32, {3, 8}), ids = b.input("ids", DType::U32, {3});
  State k0 = tensor::layer_state(k, 0);
  State next = Builder::record(Op::scatter_rows, {k0, rows, ids}, {}, {}).state;
  CHECK_EQ(next.version(), 1);
  CHECK(tensor::layer_state(k, 1).valid());
  CHECK(tensor::read_state(next).valid());
  CHECK(tensor::read_state(tensor::layer_state(k, 1)).valid());
  CHECK(!b.err());
  CHECK(!tensor::read_state(tensor::layer_state(k, 0)).valid());
  CHECK(says(b, "is version 0 of state 'k', 1 write ago, and must be version 1"));
  CHECK(!tensor::read_state(k).valid());
}

TEST(p26_10_a_read_before_a_write_goes_stale) {
  Builder b;
  State s = b.state("s", DType::F32, {4, 8});
  Tensor before = tensor::read_state(s);
  Builder::record(Op::scatter_rows,
                  {s, b.input("r", DType::F32, {8}), b.input("i", DType::U32, {1})}, {}, {});
  CHECK(!call(Op::silu, {before}).valid());
  CHECK(says(b, "silu: x is version 0 of state 's'"));
}

TEST(p26_09_outputs_follow_the_table) {
  Builder b;
  Tensor x = b.input("x", DType::F32, {4, 8});
  Tensor y = call(Op::silu, {x});
  b.output("y", y);
  b.output("flat", tensor::reshape(y, {32}));
  b.output("prefix", tensor::slice(y, 0, 0, 2));
  CHECK(!b.err());
  b.output("x2", x);
  CHECK(says(b, "output: t is input 'x' or a view of it and must be computed"));
  b.output("t", tensor::transpose(y, 0, 1));
  b.output("tail", tensor::slice(y, 0, 1, 2));
  b.output("y", y);
  b.output("none", Tensor());
  CHECK_EQ(b.err()->diagnostics.size(), size_t(5));
}

TEST(p26_08_unused_ports_and_scalars_are_all_listed) {
  Builder b;
  b.input("a", DType::F32, {1});
  b.weight("w", DType::F32, {1});
  b.state("s", DType::F32, {1, 1});
  b.scalar("t", ScalarKind::F32);
  CHECK_THROWS(b.finish(), Error, "weight: 'w' is unused");
  try {
    b.finish();
  } catch (const Error& e) { CHECK_EQ(e.diagnostics.size(), size_t(4)); }
  Builder empty("nothing");
  CHECK_THROWS(empty.finish(), Error, "without an output and without a state write");
}

TEST(attributes_are_checked) {
  Builder b;
  Tensor x = b.input("x", DType::F32, {2, 8}), pos = b.input("pos", DType::U32, {2});
  b.scalar("base", ScalarKind::F32);
  CHECK(
      call(Op::rope, {x, pos, Operand()}, {{"rotary_dim", number(8)}, {"base_name", text("base")}})
          .valid());
  CHECK(!b.err());
  call(Op::rope, {x, pos, Operand()}, {{"rotary_dim", number(7)}, {"base_name", text("base")}});
  CHECK(says(b, "rope: rotary_dim is 7 and must be positive, even and at most 8"));
  Builder c;
  Tensor y = c.input("x", DType::F32, {2, 8});
  c.scalar("n", ScalarKind::U32);
  call(Op::scale, {y}, {{"scalar_name", text("n")}});
  CHECK(says(c, "scale: scalar_name is 'n', a scalar of kind u32, and must be of kind f32"));
  Builder d;
  call(Op::rms_norm, {d.input("x", DType::F32, {2, 8}), d.weight("g", DType::F32, {8})});
  CHECK(says(d, "rms_norm: eps is None and must be given"));
}

TEST(stream_vectors) {
  const auto bits = [](uint64_t seed, uint64_t step) {
    return int(Stream{seed}.draw(step) * 0x1p24f);
  };
  CHECK_EQ(bits(0, 1), 14819496);
  CHECK_EQ(bits(1, 0), 5673494);
  CHECK_EQ(bits(42, 1000), 6687004);
  CHECK_EQ(bits(~0ull, 2), 15310840);
  CHECK_EQ(derive(0, 0).seed, 0xe220a8397b1dcdafull);
  CHECK_EQ(derive(42, 1).seed, 0x28efe333b266f103ull);
}

TEST(sampling_options_are_refused_not_bent) {
  CHECK_THROWS((SamplingOptions{.temperature = 1e-6}).validate(), Error,
               "0 for greedy, or 0.001 or more");
  CHECK_THROWS((SamplingOptions{.top_k = 200}).validate(), Error, "exact=True");
  CHECK_THROWS((SamplingOptions{.top_p = 1.5}).validate(), Error, "in [0, 1]");
  SamplingOptions ok{.temperature = 0.7, .top_k = 200, .exact = true};
  ok.validate();
  CHECK_EQ(ok.scalars("s").size(), size_t(1));
  CHECK_THROWS((SamplingOptions{.temperature = 1, .presence = 1}).scalars("s", 9, 8), Error,
               "history's capacity");
}
