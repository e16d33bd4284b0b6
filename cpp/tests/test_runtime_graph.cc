// Recorded graphs through builder, planner, kernels and runtime: the same bits for every thread
// count and table of a level, planned or naive, whatever the memory held before.
#include <cmath>
#include <map>

#include "backends/cpu/isa.h"
#include "check.h"
#include "runtime/runtime.h"

using namespace accel;

namespace {

Attr real(float v) {
  Attr a;
  a.set = true;
  a.f = v;
  return a;
}
Attr text(const std::string& v) {
  Attr a;
  a.set = true;
  a.s = v;
  return a;
}
Tensor op(Op which, const std::vector<Operand>& in, AttrArgs attrs = {},
          Site site = std::source_location::current()) {
  return Builder::record(which, in, std::move(attrs), std::move(site)).value();
}

constexpr int64_t kRows = 5, kIn = 64, kOut = 33;

// y = softmax(scale * silu(rms_norm(x) @ w) + x @ w): a diamond, several transients, a scalar.
Builder record(const RuntimePtr& rt) {
  Builder b = rt->new_builder("diamond");
  const Tensor x = b.input("x", DType::F32, {kRows, kIn});
  const Tensor gain = b.weight("gain", DType::F32, {kIn}),
               w = b.weight("w", DType::F32, {kIn, kOut});
  b.scalar("s", ScalarKind::F32);
  const Tensor h = op(Op::rms_norm, {x, gain}, {{"eps", real(1e-5f)}});
  const Tensor left = op(Op::silu, {op(Op::matmul, {h, w})});
  const Tensor scaled = op(Op::scale, {left}, {{"scalar_name", text("s")}});
  b.output("y", op(Op::softmax, {op(Op::add, {scaled, op(Op::matmul, {x, w})})}));
  return b;
}

BufferPtr filled(const DevicePtr& d, int64_t n, uint32_t seed) {
  const BufferPtr b = d->new_buffer(DType::F32, n, "b");
  for (int64_t i = 0; i < n; ++i) {
    seed = seed * 1664525u + 1013904223u;
    static_cast<float*>(b->host())[i] = float(seed >> 8) * 0x1p-23f - 1.0f;
  }
  return b;
}
BufferView all_of(const BufferPtr& b) {
  return {b, b->dtype, 0, b->count};
}

std::vector<float> run(const CpuOptions& options, bool naive) {
  const DevicePtr d = open_cpu(options);
  const RuntimePtr rt = Runtime::create(d);
  CompileOptions compile;
  compile.naive = naive, compile.verify = true;
  const PlanPtr plan = Plan::compile(record(rt), compile);
  CHECK_EQ(plan->label(), "diamond");
  const BufferPtr y = d->new_buffer(DType::F32, kRows * kOut, "y");
  const auto bound = plan->bind({{"x", all_of(filled(d, kRows * kIn, 1))},
                                 {"gain", all_of(filled(d, kIn, 2))},
                                 {"w", all_of(filled(d, kIn * kOut, 3))},
                                 {"y", all_of(y)}},
                                {{"s", f32(0.5f)}});
  for (int i = 0; i < 2; ++i) CHECK(plan->submit(*bound)->wait());
  const Counters c = rt->counters();
  CHECK_EQ(c.built, 1);
  CHECK_EQ(c.planned, 1);
  const float* f = static_cast<const float*>(y->host());
  return {f, f + kRows * kOut};
}

}  // namespace

TEST(test_graph_gives_the_same_bits_however_it_runs) {
  std::map<std::string, std::vector<float>> by_level;
  for (const auto* table : built_tables()) {
    if (!machine_has(table->isa)) continue;
    for (const int threads : {1, 2, 3})
      for (const int fill : {-1, 0xff}) {
        CpuOptions options;
        options.isa = table->isa, options.threads = threads, options.debug_fill = fill;
        const std::vector<float> got = run(options, fill == 0xff && threads == 2);
        std::vector<float>& want = by_level[table->level];
        if (want.empty()) want = got;
        CHECK(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)) == 0);
      }
  }
  // Not trivial: each row sums to 1 and is not constant.
  for (const auto& [level, y] : by_level)
    for (int64_t r = 0; r < kRows; ++r) {
      double sum = 0;
      for (int64_t i = 0; i < kOut; ++i) sum += double(y[size_t(r * kOut + i)]);
      // kOut terms of at most 1, each off by a few 2^-24.
      CHECK(std::fabs(sum - 1) < kOut * 0x1p-22);
      CHECK(y[size_t(r * kOut)] != y[size_t(r * kOut + 1)]);
    }
}

TEST(test_failed_compile_counts_no_plan) {
  CpuOptions options;
  options.threads = 1;
  const DevicePtr d = open_cpu(options);
  const RuntimePtr rt = Runtime::create(d);
  Builder bad = rt->new_builder("bad");
  bad.output("y", op(Op::silu, {bad.input("x", DType::U32, {4})}));
  CHECK_THROWS(Plan::compile(bad), Error, "silu: x is u32");
  int calls = 0;
  CompileOptions stop;
  stop.progress = [&](const std::string&, int, int) {
    if (++calls == 4) throw std::runtime_error("stopped by the user");
  };
  CHECK_THROWS(Plan::compile(record(rt), stop), std::runtime_error, "stopped");
  CHECK_THROWS(Plan::compile(Builder("alone")), Error, "must be made by Runtime::new_builder");
  for (int nth = 1;; ++nth) {
    fail_allocation(nth);
    try {
      Plan::compile(record(rt));
      CHECK(nth > 1);
      break;
    } catch (const Error& e) { CHECK_EQ(e.code, "out_of_memory"); }
  }
  fail_allocation(0);
  rt->close();  // throws if one of them was counted
  CHECK_THROWS(Plan::compile(record(rt)), Error, "runtime is closed and must be open");
  d->close();
}
