// SHA-256 vectors, identities against kernel digests and devices, the plan cache with collisions.
#include "backends/cpu/isa.h"
#include "base/sha256.h"
#include "check.h"
#include "fake_plan.h"
#include "runtime/plan_cache.h"

using namespace accel;

TEST(test_sha256_gives_the_published_vectors) {
  CHECK_EQ(hex_of(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_EQ(hex_of(sha256("abc")),
           "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK_EQ(hex_of(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
           "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK_EQ(hex_of(sha256(std::string(1000000, 'a'))),
           "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // Every length around a block's end differs from every other.
  std::vector<std::string> seen;
  for (size_t n = 0; n < 200; ++n) seen.push_back(hex_of(sha256(std::string(n, '\0'))));
  std::sort(seen.begin(), seen.end());
  CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
}

namespace {

RuntimePtr runtime_with(const std::string& digest, int threads = 1) {
  CpuOptions options;
  options.threads = threads, options.isa = "base";
  return Runtime::create(open_cpu_with(pick_table("base"), options, digest));
}

void record(Builder& b) {
  const Tensor x = b.input("x", DType::F32, {4});
  b.output("y", tensor::cast(x, DType::F16));
}

Identity of(const RuntimePtr& rt) {
  Builder b = rt->new_builder();
  record(b);
  return identity(b, {});
}

}  // namespace

TEST(test_p26_26_a_kernel_digest_changes_numerical_alone) {
  const Identity one = of(runtime_with("one")), two = of(runtime_with("two"));
  CHECK(one.semantic.bytes == two.semantic.bytes);
  CHECK(one.deployment.bytes == two.deployment.bytes);
  CHECK(one.numerical.bytes != two.numerical.bytes);
  CHECK(one.numerical.digest != two.numerical.digest);
  CHECK(one.hex() != two.hex());
  CHECK(one == of(runtime_with("one", 2)));
}

TEST(test_every_built_table_has_its_own_digest) {
  std::vector<std::string> seen;
  for (const auto* table : built_tables()) {
    const std::string digest = kernel_digest(table->isa);
    CHECK_EQ(digest.size(), size_t(64));
    CHECK(std::find(seen.begin(), seen.end(), digest) == seen.end());
    seen.push_back(digest);
  }
  CHECK_EQ(kernel_digest("sse9"), "");
}

TEST(test_p26_26_colliding_digests_are_told_apart) {
  const RuntimePtr rt = runtime_with("one");
  PlanCache cache(rt, [](const Identity&) { return std::string("same"); });
  const auto of_width = [&](int64_t n) {
    return cache.compile([n](Builder& b) {
      b.output("y", tensor::cast(b.input("x", DType::F32, {n}), DType::F16));
    });
  };
  const PlanPtr four = of_width(4), five = of_width(5);
  CHECK(four != five);
  CHECK(of_width(4) == four && of_width(5) == five);
  CHECK_EQ(cache.size(), size_t(2));
  CHECK_EQ(four->ports()[0].shape.to_string(), "[4]");
  cache.close();
  CHECK(four->closed() && five->closed());
  CHECK_THROWS(of_width(4), Error, "the plan cache is closed and must be open");
}

TEST(test_a_plan_made_from_data_has_an_identity) {
  const RuntimePtr rt = Runtime::create(fake::open_threads(1));
  const PlanPtr plan = Plan::compile_data(rt, fake::add_plan(8, 2));
  CHECK_EQ(plan->identity().hex().size(), size_t(16));
  CHECK(plan->identity() == Plan::compile_data(rt, fake::add_plan(8, 3))->identity());
  CHECK(!(plan->identity() == Plan::compile_data(rt, fake::add_plan(9, 2))->identity()));
}
