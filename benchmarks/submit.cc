// Host cost of a submission: a plan of 400 commands with empty kernels and 300 ports, the shape of
// a small model's decode step. Prints the time inside submit() and the round trip with wait(), both
// with prepared bindings.
#include <algorithm>
#include <cstdio>

#include "../cpp/tests/fake_plan.h"
#include "exec/park.h"

using namespace accel;

namespace {

constexpr int kCommands = 400, kPorts = 300, kRounds = 2000;

PlanData make_plan_data() {
  fake::PlanMaker m("empty");
  std::vector<fake::Place> ports;
  for (int i = 0; i < kPorts; ++i)
    ports.push_back(
        m.slot(m.port("w" + std::to_string(i), PortKind::Weight, DType::U32, {16}), false));
  const int y = m.port("y", PortKind::Output, DType::U32, {16});
  const int k = m.scalar("k", ScalarKind::U32);
  const int base = m.scalar("base", ScalarKind::F32);
  const fake::Place frequencies = m.frequencies(base, 64), out = m.slot(y, true);
  for (int i = 0; i < kCommands; ++i)
    m.command("nothing", {m.arena(64 * (i % 8), 64), ports[size_t(i % kPorts)], frequencies, out},
              {16, 1}, {k, base});
  return m.p;
}

void print(const char* what, std::vector<int64_t>& ns) {
  std::sort(ns.begin(), ns.end());
  std::printf("%-34s median %6.2f us   p10 %6.2f us   p90 %6.2f us\n", what,
              double(ns[ns.size() / 2]) * 1e-3, double(ns[ns.size() / 10]) * 1e-3,
              double(ns[ns.size() * 9 / 10]) * 1e-3);
}

void measure(int threads) {
  const DevicePtr d = fake::open_threads(threads);
  const PlanPtr plan = Plan::compile_data(Runtime::create(d), make_plan_data());
  BindingMap map;
  for (const PortDesc& p : plan->ports())
    map[p.name] = fake::all_of(d->new_buffer(p.dtype, 16, p.name));
  const ScalarMap scalars{{"k", u32(1)}, {"base", f32(10000)}};
  const auto bound = plan->bind(map, scalars);
  std::vector<int64_t> submit, trip, run, set, dict;
  for (int i = 0; i < kRounds; ++i) {
    bound->set_scalar("k", u32(uint32_t(i)));
    const int64_t t0 = now_ns();
    const FencePtr f = plan->submit(*bound);
    const int64_t t1 = now_ns();
    f->wait();
    const int64_t t2 = now_ns();
    submit.push_back(t1 - t0), trip.push_back(t2 - t0);
    run.push_back(f->stats().finished_ns - f->stats().started_ns);
    const int64_t t3 = now_ns();
    bound->set("y", map.at("y"));
    set.push_back(now_ns() - t3);
    if (i % 20) continue;
    const int64_t t4 = now_ns();
    const FencePtr g = plan->submit(map, scalars);
    dict.push_back(now_ns() - t4);
    g->wait();
  }
  std::printf("%d commands, %d ports, %d threads\n", kCommands, kPorts + 1, threads);
  print("submit(bound)", submit);
  print("submit(bound) to wait() returned", trip);
  print("walking the empty commands", run);
  print("bound.set(one port)", set);
  print("submit(maps), binding included", dict);
}

}  // namespace

int main() {
  measure(1);
  measure(2);
}
