// The decode step of a SmolLM2-135M-shaped model from C++ alone: recorded, compiled and submitted
// without Python. Weights are random, so the tokens mean nothing; that two runs give the same ones
// is checked before anything is timed.
//   bench_step [threads] [steps] [isa]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "runtime/runtime.h"

using namespace accel;

namespace {

constexpr int64_t kLayers = 30, kHidden = 576, kFfn = 1536, kHeads = 9, kKvHeads = 3, kHeadDim = 64;
constexpr int64_t kVocab = 49152, kCapacity = 512, kGroup = 32;
constexpr int kWindows = 8;

Attr text(const char* value) {
  Attr a;
  a.set = true;
  a.s = value;
  return a;
}
Attr real(float value) {
  Attr a;
  a.set = true;
  a.f = value;
  return a;
}
Attr integer(int64_t value) {
  Attr a;
  a.set = true;
  a.i = value;
  return a;
}

// Records one operator at the caller's line.
Recorded op(Op which, const std::vector<Operand>& operands, const AttrArgs& attrs = {},
            Site site = std::source_location::current()) {
  return Builder::record(which, operands, attrs, site);
}

Tensor norm(Builder& b, const std::string& name, const Tensor& x) {
  const Tensor gain = b.weight(name, DType::F32, {kHidden});
  return op(Op::rms_norm, {x, gain}, {{"eps", real(1e-5f)}}).value();
}

Tensor project(Builder& b, const std::string& name, const Tensor& x, int64_t out) {
  const Int4 w = b.int4(name, {out, x.shape().back()}, kGroup, true);
  return op(Op::int4_matvec, {x, w}, {{"w_order", text("nk")}}).value();
}

struct Step {
  Tensor position, lengths;
  State k, v;
};

Tensor attend(Builder& b, const Step& s, const std::string& layer, const Tensor& x, int64_t i) {
  const AttrArgs rope = {{"rotary_dim", integer(kHeadDim)}, {"base_name", text("base")}};
  const State k = tensor::layer_state(s.k, i), v = tensor::layer_state(s.v, i);
  const Tensor q = tensor::reshape(project(b, layer + "q", x, kHidden), {kHeads, kHeadDim});
  const Tensor key =
      tensor::reshape(project(b, layer + "k", x, kKvHeads * kHeadDim), {kKvHeads, kHeadDim});
  const Tensor value = project(b, layer + "v", x, kKvHeads * kHeadDim);
  const Tensor turned_q = op(Op::rope, {q, s.position, Operand()}, rope).value();
  const Tensor turned_k = op(Op::rope, {key, s.position, Operand()}, rope).value();
  const State k2 = op(Op::scatter_rows, {k, tensor::cast(turned_k, DType::F16), s.position}).state;
  const State v2 = op(Op::scatter_rows, {v, tensor::cast(value, DType::F16), s.position}).state;
  const Tensor seen =
      op(Op::attention, {turned_q, k2, v2, s.lengths, Operand(), Operand(), Operand()},
         {{"scale_name", text("scale")}})
          .value();
  return project(b, layer + "o", tensor::reshape(seen, {kHidden}), kHidden);
}

Tensor feed(Builder& b, const std::string& layer, const Tensor& x) {
  const Tensor gate = project(b, layer + "gate", x, kFfn), up = project(b, layer + "up", x, kFfn);
  return project(b, layer + "down", op(Op::swiglu, {gate, up}).value(), kHidden);
}

void record(Builder& b) {
  const Tensor token = b.input("token", DType::U32, {1});
  Step s = {b.input("position", DType::U32, {1}), b.input("lengths", DType::U32, {1}),
            b.state("k", DType::F16, {kLayers, kCapacity, kKvHeads, kHeadDim}),
            b.state("v", DType::F16, {kLayers, kCapacity, kKvHeads, kHeadDim})};
  b.scalar("scale", ScalarKind::F32);
  b.scalar("base", ScalarKind::F32);
  const Quantized embedding = b.quantized("embedding", {kVocab, kHidden});
  Tensor x = tensor::reshape(op(Op::quant_gather_rows, {embedding, token}).value(), {kHidden});
  for (int64_t i = 0; i < kLayers; ++i) {
    const std::string layer = "layer" + std::to_string(i) + ".";
    x = op(Op::add, {x, attend(b, s, layer, norm(b, layer + "norm1", x), i)}).value();
    x = op(Op::add, {x, feed(b, layer, norm(b, layer + "norm2", x))}).value();
  }
  const Tensor last = tensor::reshape(norm(b, "norm", x), {1, kHidden});
  const Tensor logits = op(Op::quant_matmul, {last, embedding}, {{"w_order", text("nk")}}).value();
  b.output("next", op(Op::argmax, {logits}).value());
}

uint16_t half(float value) {  // of a normal number that f16 can hold
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return uint16_t((bits >> 16 & 0x8000) | (((bits >> 13) - (112 << 10)) & 0x7fff));
}

// Random weights whose products keep the activations near one.
void fill(const PortDesc& port, Buffer& buffer, std::mt19937& random) {
  const int64_t n = buffer.count;
  std::uniform_real_distribution<float> unit(0.5f, 1.0f);
  const bool biases = port.name.ends_with(".biases");
  for (int64_t i = 0; i < n; ++i) {
    switch (port.dtype) {
      case DType::F32:
        static_cast<float*>(buffer.host())[i] = unit(random);
        break;
      case DType::F16: {
        const float scale = 0.004f * unit(random);
        static_cast<uint16_t*>(buffer.host())[i] = half(biases ? -7.5f * scale : scale);
        break;
      }
      case DType::I8:
        static_cast<int8_t*>(buffer.host())[i] = int8_t(int(random() % 255) - 127);
        break;
      default:
        static_cast<uint32_t*>(buffer.host())[i] = uint32_t(random());
    }
  }
}

struct Model {
  DevicePtr device;
  PlanPtr plan;
  std::shared_ptr<Bindings> bound;
  uint32_t *token, *position, *lengths, *next;
  int64_t weight_bytes = 0;
};

Model make(int threads, const std::string& isa) {
  Model m;
  CpuOptions options;
  options.threads = threads;
  options.isa = isa;
  m.device = open_cpu(options);
  Builder b = Runtime::create(m.device)->new_builder("decode");
  record(b);
  m.plan = Plan::compile(b);
  std::mt19937 random(7);
  BindingMap buffers;
  for (const PortDesc& port : m.plan->ports()) {
    const int64_t n = port.shape.elements();
    const BufferPtr buffer = m.device->new_buffer(port.dtype, n, port.name);
    if (port.kind == PortKind::Weight) {
      fill(port, *buffer, random);
      m.weight_bytes += buffer->bytes();
    }
    buffers[port.name] = {buffer, port.dtype, 0, n};
  }
  const auto word = [&](const char* name) {
    return static_cast<uint32_t*>(buffers[name].buffer->host());
  };
  m.token = word("token"), m.position = word("position"), m.lengths = word("lengths"),
  m.next = word("next");
  m.bound =
      m.plan->bind(buffers, {{"scale", f32(1 / std::sqrt(float(kHeadDim)))}, {"base", f32(1e5f)}});
  return m;
}

// Decodes `steps` tokens behind position `at`, every one fed with the one before.
std::vector<uint32_t> decode(Model& m, uint32_t first, int64_t at, int64_t steps) {
  std::vector<uint32_t> ids = {first};
  for (int64_t i = 0; i < steps; ++i) {
    *m.token = ids.back();
    *m.position = uint32_t(at + i);
    *m.lengths = uint32_t(at + i + 1);
    m.plan->submit(*m.bound)->wait();
    ids.push_back(*m.next);
  }
  return ids;
}

int run(int threads, int64_t steps, const std::string& isa) {
  Model m = make(threads, isa);
  const std::vector<uint32_t> once = decode(m, 1, 0, 8);
  if (decode(m, 1, 0, 8) != once || *std::max_element(once.begin(), once.end()) >= kVocab) {
    std::fprintf(stderr, "bench_step: two runs of the same steps differ\n");
    return 1;
  }
  std::vector<double> us;
  for (int window = 0; window < kWindows; ++window) {
    const auto begin = std::chrono::steady_clock::now();
    decode(m, 1, 0, steps / kWindows);
    const std::chrono::duration<double, std::micro> spent =
        std::chrono::steady_clock::now() - begin;
    us.push_back(spent.count() / double(steps / kWindows));
  }
  std::sort(us.begin(), us.end());
  const double median = us[us.size() / 2];
  const DeviceInfo& info = m.device->info();
  std::printf(
      "{\"bench\": \"step\", \"threads\": %d, \"isa\": \"%s\", \"us\": %.1f, \"best_us\": %.1f, "
      "\"tok_s\": %.1f, "
      "\"weight_bytes\": %lld, \"gb_s\": %.2f, \"plan_bytes\": %lld, \"flags\": \"%s\"}\n",
      info.threads, info.isa.c_str(), median, us[0], 1e6 / median, (long long)m.weight_bytes,
      double(m.weight_bytes) / median / 1e3, (long long)m.plan->memory().transient_bytes,
      ACCEL_FLAGS);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 0;
  const int64_t steps = argc > 2 ? std::atoll(argv[2]) : 256;
  if (threads < 0 || steps < kWindows || steps / kWindows > kCapacity) {
    std::fprintf(stderr, "usage: bench_step [threads] [steps, %d to %d] [isa]\n", kWindows,
                 int(kWindows * kCapacity));
    return 2;
  }
  try {
    return run(threads, steps, argc > 3 ? argv[3] : "");
  } catch (const Error& e) {
    std::fprintf(stderr, "bench_step: %s\n", e.what());
    return 1;
  }
}
