// Random graphs, planned against naive and against the oracle's walk of the graph in the registered
// orders, byte for byte: ./test_random_graphs [count] [seed].
// Every byte of transient memory holds a pattern before each submission, another one on each side,
// so that a read of bytes that nobody wrote shows. A failure prints the seed that repeats it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "oracle/oracle.h"
#include "random_graph.h"
#include "runtime/runtime.h"

using namespace accel;

namespace {

// A device with its own number of threads and its own pattern; both sides see the same data.
struct Side {
  Side(int threads, int fill, bool naive_plans) : naive(naive_plans), pattern(fill) {
    CpuOptions options;
    options.threads = threads;
    options.debug_fill = fill;
    device = open_cpu(options);
    runtime = Runtime::create(device);
  }
  DevicePtr device;
  RuntimePtr runtime;
  bool naive;
  int pattern;
};

using Bytes = std::vector<uint8_t>;
constexpr int kSubmissions = 2;  // states carry over from one to the next

struct Result {
  std::vector<Bytes> written;  // outputs and states, in port order
  std::vector<PortDesc> ports;
  GraphMemory memory;
};

void fill_buffer(const Side& side, const PortDesc& port, uint64_t seed, const BufferPtr& buffer) {
  if (port.kind == PortKind::Output) {
    std::memset(buffer->host(), side.pattern, size_t(buffer->bytes()));
    return;
  }
  const Bytes data = random_graph::data_of(port, seed);
  std::memcpy(buffer->host(), data.data(), data.size());
}

Result run(const Side& side, uint64_t seed) {
  const Builder builder = side.runtime->new_builder("random " + std::to_string(seed));
  random_graph::generate(builder, seed);
  CompileOptions options;
  options.naive = side.naive;
  options.verify = true;
  const PlanPtr plan = Plan::compile(builder, options);
  Result result;
  result.memory = plan->memory();
  result.ports = plan->ports();
  BindingMap buffers;
  for (const PortDesc& port : result.ports) {
    const int64_t n = port.shape.elements();
    const BufferPtr buffer = side.device->new_buffer(port.dtype, n, port.name);
    fill_buffer(side, port, seed, buffer);
    buffers[port.name] = {buffer, port.dtype, 0, n};
  }
  ScalarMap scalars;
  for (const ScalarDesc& s : plan->scalars()) scalars[s.name] = random_graph::scalar_of(s, seed);
  for (int step = 0; step < kSubmissions; ++step) plan->submit(buffers, scalars)->wait();
  for (const PortDesc& port : result.ports) {
    const BufferPtr& buffer = buffers[port.name].buffer;
    const auto* bytes = static_cast<const uint8_t*>(buffer->host());
    Bytes copy(bytes, bytes + buffer->bytes());
    if (port.kind == PortKind::Input || port.kind == PortKind::Weight) {
      if (copy != random_graph::data_of(port, seed))
        throw std::runtime_error(port.name + " is an input and was written");
      copy.clear();
    }
    result.written.push_back(std::move(copy));
  }
  return result;
}

float number_at(const PortDesc& port, const Bytes& bytes, size_t i) {
  uint32_t word = 0;
  float v = 0;
  uint16_t half = 0;
  switch (port.dtype) {
    case DType::F32:
      std::memcpy(&v, &bytes[i * 4], 4);
      return v;
    case DType::F16:
      std::memcpy(&half, &bytes[i * 2], 2);
      return f32_from_f16(half);
    default:
      std::memcpy(&word, &bytes[i * 4], 4);
      return float(word);
  }
}

struct Totals {
  int64_t elements = 0, finite = 0, outputs = 0, trivial = 0, shared = 0;
};

// Counts what was compared: how much is finite, and how many outputs hold one number throughout.
void count(const Result& result, Totals& totals) {
  totals.shared += result.memory.transient_bytes < result.memory.unaliased_bytes;
  for (size_t p = 0; p < result.ports.size(); ++p) {
    const PortDesc& port = result.ports[p];
    const size_t n = size_t(port.shape.elements());
    if (result.written[p].empty() || n < 2 || port.dtype == DType::U32) continue;
    std::set<float> distinct;
    for (size_t i = 0; i < n; ++i) {
      const float v = number_at(port, result.written[p], i);
      ++totals.elements;
      if (!std::isfinite(v)) continue;
      ++totals.finite;
      distinct.insert(v);
    }
    ++totals.outputs;
    totals.trivial += distinct.size() < 2;
  }
}

Bytes stored(const oracle::Value& value) {
  const size_t size = size_t(size_of(value.type.dtype));
  Bytes bytes(value.v.size() * size);
  for (size_t i = 0; i < value.v.size(); ++i) {
    const float v = float(value.v[i]);
    const uint16_t half = f16_from_f64(value.v[i]);
    const uint32_t word = value.type.dtype == DType::U32 ? uint32_t(value.v[i]) : 0;
    switch (value.type.dtype) {
      case DType::F32:
        std::memcpy(&bytes[i * 4], &v, 4);
        break;
      case DType::F16:
        std::memcpy(&bytes[i * 2], &half, 2);
        break;
      default:
        std::memcpy(&bytes[i * 4], &word, 4);
        break;
    }
  }
  return bytes;
}

// What the graph says, without a plan. States that it does not write have no result.
Result walk(uint64_t seed, oracle::Level level) {
  const Builder builder("walked");
  random_graph::generate(builder, seed);
  const Graph graph = builder.finish();
  std::map<std::string, Bytes> data;
  oracle::Inputs inputs;
  for (const PortDesc& port : graph.ports)
    if (port.kind != PortKind::Output) data[port.name] = random_graph::data_of(port, seed);
  for (const ScalarDesc& s : graph.scalars)
    inputs.scalars[s.name] = random_graph::scalar_of(s, seed).bits();
  std::map<std::string, oracle::Value> values;
  oracle::Options options;
  options.level = level;
  for (int step = 0; step < kSubmissions; ++step) {
    for (const PortDesc& port : graph.ports)
      if (port.kind != PortKind::Output)
        inputs.ports[port.name] = {port.dtype, data[port.name].data(), port.shape.elements()};
    values = oracle::evaluate(graph, inputs, options);
    for (const auto& [name, value] : values)
      if (data.contains(name)) data[name] = stored(value);
  }
  Result result;
  result.ports = graph.ports;
  for (const PortDesc& port : graph.ports) {
    const bool output = port.kind == PortKind::Output;
    if (output) result.written.push_back(stored(values.at(port.name)));
    else if (port.kind == PortKind::State) result.written.push_back(data[port.name]);
    else result.written.push_back({});
  }
  return result;
}

// Empty, or how a differs from what it must be.
std::string difference(const Result& a, const Result& must, const char* side) {
  for (size_t p = 0; p < a.ports.size(); ++p) {
    const Bytes &x = a.written[p], &y = must.written[p];
    const size_t at = size_t(std::mismatch(x.begin(), x.end(), y.begin()).first - x.begin());
    if (at == x.size()) continue;
    const size_t i = at / size_t(size_of(a.ports[p].dtype));
    char text[200];
    std::snprintf(text, sizeof text, "%s %s differs at element %zu: %.9g, and %.9g by the %s",
                  name_of(a.ports[p].kind), a.ports[p].name.c_str(), i,
                  double(number_at(a.ports[p], x, i)), double(number_at(a.ports[p], y, i)), side);
    return text;
  }
  return "";
}

bool compare(const Side& planned, const Side& naive, uint64_t seed, Totals& totals) {
  std::string text;
  try {
    const Result a = run(planned, seed), b = run(naive, seed);
    const bool fma = planned.device->info().level == "fma";
    text = difference(a, b, "naive plan");
    if (text.empty())
      text = difference(a, walk(seed, fma ? oracle::Level::fma : oracle::Level::base), "oracle");
    count(a, totals);
  } catch (const std::exception& e) { text = e.what(); }
  if (text.empty()) return true;
  std::printf("seed %llu: %s\nrepeat with: test_random_graphs 1 %llu\n", (unsigned long long)seed,
              text.c_str(), (unsigned long long)seed);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t graphs = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 500;
  const uint64_t first = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  if (graphs == 0) {
    std::printf("count is %s and must be a positive integer\n", argv[1]);
    return 2;
  }
  // 0xff is NaN in every float; 0x3c is a small positive number.
  const Side planned(2, 0xff, false), naive(1, 0x3c, true);
  Totals totals;
  int failed = 0;
  for (uint64_t seed = first; seed < first + graphs && failed < 5; ++seed)
    failed += !compare(planned, naive, seed, totals);
  std::printf(
      "%llu graphs, %lld outputs and states, %lld of one number, %lld of %lld finite, "
      "%lld share memory, %d failed\n",
      (unsigned long long)graphs, (long long)totals.outputs, (long long)totals.trivial,
      (long long)totals.finite, (long long)totals.elements, (long long)totals.shared, failed);
  // One graph may be odd; many may not.
  const bool sound = graphs < 100 || (totals.trivial * 5 < totals.outputs &&
                                      totals.finite * 100 > totals.elements * 95 &&
                                      totals.shared * 4 > int64_t(graphs));
  if (!sound) std::printf("what was compared is trivial\n");
  return failed != 0 || !sound;
}
