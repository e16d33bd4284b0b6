// Products of one row as one launch: which ring, how many groups, what is bound where, and what no
// fused kernel takes.
#include "ops/fused_product.h"

#include "ops/products.h"
#include "shared/params/fused_product.h"
#include "shared/ring_tiles.h"
#include "tests/check.h"

using namespace accel;

namespace {

Limits cuda() {
  Limits limits;
  limits.backend = Backend::cuda;
  limits.group_bytes = 232448;
  return limits;
}
In in_of(DType dtype, const Shape& shape) {
  In in;
  in.present = true;
  in.dtype = dtype;
  in.shape = shape;
  in.strides = contiguous_strides(shape);
  return in;
}
Call call_of(Op op, std::vector<In> in) {
  Call c;
  c.def = &op_def(op);
  c.in = std::move(in);
  c.attrs.resize(c.def->attrs.size());
  return c;
}
void text(Attr& a, const char* s) {
  a.set = true;
  a.s = s;
}
Call product(int64_t k, int64_t n, DType w = DType::F16, int64_t m = 1, const char* order = "nk") {
  Call c = call_of(Op::matmul, {in_of(DType::F32, {m, k}), in_of(w, {n, k})});
  text(c.attrs[w_order], order);
  c.results = {Type{DType::F32, {m, n}}};
  return c;
}
Call int4(int64_t k, int64_t n, bool zeros = false, const char* rounded = nullptr) {
  const In plane = in_of(DType::BF16, {n * k / 32});
  In absent;
  Call c = call_of(Op::int4_matvec, {in_of(DType::F32, {k}), in_of(DType::U32, {n * k / 8}), plane,
                                     zeros ? plane : absent, zeros ? absent : plane});
  text(c.attrs[w_order], "nk");
  if (rounded) text(c.attrs[activations], rounded);
  c.weights = n * k, c.group = 32;
  c.results = {Type{DType::F32, {n}}};
  return c;
}
Call norm(int64_t k, float eps = 1e-5f) {
  Call c = call_of(Op::rms_norm, {in_of(DType::F32, {1, k}), in_of(DType::F32, {k})});
  c.attrs[0].set = true, c.attrs[0].f = eps;
  c.results = {Type{DType::F32, {1, k}}};
  return c;
}
Call two(Op op, int64_t n, int64_t other) {
  Call c = call_of(op, {in_of(DType::F32, {1, n}), in_of(DType::F32, {1, other})});
  c.results = {Type{DType::F32, {1, n}}};
  return c;
}
bool make(const FusedProduct& f, CombinedLaunch& out, const Limits& limits = cuda()) {
  const Choice choice = select(*f.products[0], limits, {});
  return fused_product(f, *choice.row, limits, out);
}
FusedProductParams params_of(const CombinedLaunch& l) {
  FusedProductParams p = {};
  CHECK_EQ(l.params.words.size() * 4, sizeof p);
  std::memcpy(&p, l.params.words.data(), sizeof p);
  return p;
}
void is_bound(const CombinedLaunch& l, size_t place, const Call* c, int slot = 0) {
  CHECK(l.operands[place].first == c);
  if (c) CHECK_EQ(l.operands[place].second, slot);
}

}  // namespace

TEST(norm_and_three_products_are_bound_part_by_part) {
  const Call n = norm(576, 2e-5f), q = product(576, 576), k = product(576, 192),
             v = product(576, 194);
  FusedProduct f;
  f.norm = &n, f.products = {&q, &k, &v};
  CombinedLaunch l;
  CHECK(make(f, l));
  CHECK_EQ(l.launch.function, "matmul_nk_f32_f16_ring_one_short_fused");
  CHECK_EQ(l.launch.groups[0], 144u + 48 + 49);
  CHECK_EQ(l.launch.threads, 32u);
  CHECK_EQ(l.launch.per_unit, 0u);
  CHECK(l.launch.operands.empty());
  CHECK_EQ(l.launch.group_bytes, 576u * 4 + RING_NORM_BYTES + 2 * 4 * (1152 + 32));
  CHECK_EQ(l.operands.size(), size_t(15));
  is_bound(l, 0, &n, 0);
  is_bound(l, 1, &n, 1);
  is_bound(l, 2, nullptr);
  const Call* parts[] = {&q, &k, &v};
  for (size_t i = 0; i < 3; ++i) {
    is_bound(l, 3 + 4 * i, parts[i], 1);
    is_bound(l, 4 + 4 * i, nullptr);
    is_bound(l, 5 + 4 * i, nullptr);
    is_bound(l, 6 + 4 * i, parts[i], 2);
  }
  const FusedProductParams p = params_of(l);
  CHECK(p.K == 576 && p.parts == 3 && p.N[0] == 576 && p.N[1] == 192 && p.N[2] == 194);
  CHECK(p.norm == 1 && p.pair == 0 && p.residual == 0 && p.activations == 0 && p.eps == 2e-5f);
}

TEST(a_pair_has_the_units_of_one_weight_and_the_ring_of_both) {
  const Call n = norm(4096), gate = product(4096, 6144), up = product(4096, 6144),
             both = two(Op::swiglu, 6144, 6144);
  FusedProduct f;
  f.norm = &n, f.products = {&gate, &up}, f.swiglu = &both;
  CombinedLaunch l;
  CHECK(make(f, l));
  CHECK_EQ(l.launch.function, "matmul_nk_f32_f16_ring_one_wide_fused");
  CHECK_EQ(l.launch.groups[0], 6144u / 32);
  CHECK_EQ(l.launch.per_unit, 3u);
  is_bound(l, 6, &both, 2);
  is_bound(l, 7, &up, 1);
  is_bound(l, 10, nullptr);
  CHECK(params_of(l).pair == 1 && params_of(l).parts == 2);
  const Call other = product(4096, 6143);
  f.products = {&gate, &other};
  CHECK(!make(f, l));
}

TEST(columns_of_all_parts_choose_the_ring) {
  const Call q = product(4096, 4096), k = product(4096, 1024), v = product(4096, 1024);
  FusedProduct f;
  CombinedLaunch l;
  f.products = {&q};
  CHECK(make(f, l));
  CHECK_EQ(l.launch.function, "matmul_nk_f32_f16_ring_one_large_fused");
  CHECK_EQ(l.launch.groups[0], 4096u / 32);
  f.products = {&q, &k, &v};
  CHECK(make(f, l));
  CHECK_EQ(l.launch.function, "matmul_nk_f32_f16_ring_one_deep_fused");
  CHECK_EQ(l.launch.groups[0], 6144u / 16);
  CHECK_EQ(l.launch.per_unit, 2u);
}

TEST(a_residual_is_added_to_one_product) {
  const Call down = product(1536, 576, DType::BF16), sum = two(Op::add, 576, 576);
  FusedProduct f;
  f.products = {&down}, f.add = &sum, f.residual = 1;
  CombinedLaunch l;
  CHECK(make(f, l));
  CHECK_EQ(l.launch.function, "matmul_nk_f32_bf16_ring_one_small_fused");
  is_bound(l, 0, &down, 0);
  is_bound(l, 1, nullptr);
  is_bound(l, 2, &sum, 1);
  is_bound(l, 6, &sum, 2);
  CHECK(params_of(l).residual == 1 && params_of(l).norm == 0);
  const Call repeated = two(Op::add, 576, 1), second = product(1536, 576, DType::BF16);
  f.add = &repeated;
  CHECK(!make(f, l));
  f.add = &sum, f.products = {&down, &second};
  CHECK(!make(f, l));
}

TEST(planes_are_bound_and_equal_in_kind) {
  const Call a = int4(4096, 4096, true, "f16"), b = int4(4096, 1024, true, "f16"),
             affine = int4(4096, 1024, false, "f16"), wide = int4(4096, 1024, true);
  FusedProduct f;
  f.products = {&a, &b};
  CombinedLaunch l;
  CHECK(make(f, l));
  CHECK_EQ(l.launch.function, "int4_matmul_nk_bf16_ring_one_large_fused");
  CHECK_EQ(l.launch.groups[0], 4096u / 32 + 1024 / 32);
  is_bound(l, 4, &a, 2);
  is_bound(l, 5, &a, 3);
  is_bound(l, 8, &b, 2);
  CHECK(params_of(l).zeros == 1 && params_of(l).activations == 1);
  for (const Call* other : {&affine, &wide}) {
    f.products = {&a, other};
    CHECK(!make(f, l));
  }
  const Call n = norm(4096), c = int4(4096, 4096);
  f.products = {&c}, f.norm = &n;
  CHECK(make(f, l));
  is_bound(l, 5, &c, 4);
  CHECK(params_of(l).zeros == 0);
}

TEST(what_no_fused_kernel_takes) {
  CombinedLaunch l;
  const Call rows = product(576, 576, DType::F16, 2), kn = product(576, 576, DType::F16, 1, "kn"),
             rounded = int4(64, 8, false, "int8"), good = product(576, 576),
             longer = product(16640, 64), n = norm(16640), shorter = product(640, 576);
  Call biased = call_of(Op::linear, {good.in[0], good.in[1], in_of(DType::F32, {576})});
  text(biased.attrs[w_order], "nk");
  biased.results = good.results;
  for (const Call* c : std::vector<const Call*>{&rows, &kn, &rounded, &biased}) {
    FusedProduct f;
    f.products = {c};
    CHECK(!make(f, l));
  }
  FusedProduct f;
  f.products = {&good, &shorter};
  CHECK(!make(f, l));
  f.products = {};
  CHECK(!fused_product(f, *select(good, cuda(), {}).row, cuda(), l));
  f.products = {&good, &good, &good, &good};
  CHECK(!make(f, l));
  // A row that is longer than x in shared memory has no norm.
  f.products = {&longer};
  CHECK(make(f, l));
  f.norm = &n;
  CHECK(!make(f, l));
}

TEST(memory_decides_with_the_scale_of_the_norm) {
  const Call c = product(4096, 4096), n = norm(4096);
  FusedProduct f;
  f.norm = &n, f.products = {&c};
  CombinedLaunch l;
  CHECK(make(f, l));
  Limits limits = cuda();
  const KernelRow& row = *select(c, limits, {}).row;
  limits.group_bytes = l.launch.group_bytes - 1;
  CHECK(!fused_product(f, row, limits, l));
  limits.backend = Backend::cuda, limits.group_bytes = 0;
  CHECK(!make(f, l, limits));
}
