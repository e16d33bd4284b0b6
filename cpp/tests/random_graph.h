// Random graphs with diamonds, recorded through the builder: elementwise, products, rows, gathers,
// concat, top_k, attention, views, states whole and by layer, several outputs, shared outputs, dead
// nodes. The same seed gives the same graph and the same data. Values are kept finite by tracking
// bounds.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/sampling.h"

namespace random_graph {

using namespace accel;

inline Attr attr_int(int64_t v) {
  Attr a;
  a.set = true;
  a.i = v;
  return a;
}
inline Attr attr_real(float v) {
  Attr a;
  a.set = true;
  a.f = v;
  return a;
}
inline Attr attr_text(const std::string& v) {
  Attr a;
  a.set = true;
  a.s = v;
  return a;
}
inline Recorded call(Op op, const std::vector<Operand>& in, AttrArgs attrs = {},
                     Site site = std::source_location::current()) {
  return Builder::record(op, in, std::move(attrs), std::move(site));
}

class Generator {
 public:
  // One graph in sixteen is large enough that kernels split its work over threads.
  Generator(Builder builder, uint64_t seed)
      : b_(std::move(builder)), r_(seed), large_(seed % 16 == 0) {}

  void run(int max_nodes = 40) {
    for (int i = 1 + below(3); i > 0; --i) keep(new_tensor(), 1);
    const int steps = 3 + below(max_nodes);
    for (int i = 0; i < steps; ++i) {
      step();
      if (below(16) == 0) add_output();  // later nodes read the output's buffer
    }
    add_output();
    for (size_t i = 0; i < pool_.size(); ++i)
      if (is_leaf(pool_[i].t) && below(3)) output(pool_[i].t);
    for (const Tensor& t : ports_)
      if (!used_.contains(t.view().source.port)) call(Op::silu, {t});
    if (outputs_ == 0 && !wrote_state_) output(call(Op::silu, {any(DType::F32).t}).value());
  }

 private:
  struct Item {
    Tensor t;
    double bound = 1;  // of the absolute value
  };
  struct Cache {
    std::vector<State> parts;  // one for a state used whole, one a layer otherwise
    double bound = 1;
  };
  // Records a node and remembers which ports it used.
  Recorded call(Op op, const std::vector<Operand>& in, AttrArgs attrs = {},
                Site site = std::source_location::current()) {
    for (const Operand& o : in)
      if (o.kind == Operand::tensor) {
        used_.insert(o.t.view().source.port);
        read_.insert(o.t.view().source.node);
      }
    for (const Operand& o : in)
      for (const Tensor& t : o.ts) {
        used_.insert(t.view().source.port);
        read_.insert(t.view().source.node);
      }
    return random_graph::call(op, in, std::move(attrs), std::move(site));
  }
  static constexpr double kLimit = 1e3;  // finite in f16, sums included
  static constexpr int64_t kMostGathered = 1 << 18;

  int below(int n) { return int(r_() % uint64_t(n)); }
  int64_t width() {
    static const int64_t small[] = {1, 4, 6, 8, 16, 20}, large[] = {8, 64, 200, 320};
    return large_ ? large[below(4)] : small[below(6)];
  }
  int64_t rows() { return 1 + below(large_ ? 20 : 5); }

  void keep(const Tensor& t, double bound) { pool_.push_back({t, bound}); }
  std::string name(const char* stem) { return stem + std::to_string(names_++); }

  Tensor new_port(DType dtype, const Shape& shape) {
    const Tensor t =
        below(2) ? b_.input(name("x"), dtype, shape) : b_.weight(name("w"), dtype, shape);
    ports_.push_back(t);
    return t;
  }
  Tensor new_tensor() {
    const DType dtype = below(4) ? DType::F32 : DType::F16;
    switch (below(3)) {
      case 0:
        return new_port(dtype, {width()});
      case 1:
        return new_port(dtype, {rows(), width()});
      default:
        return new_port(dtype, {rows(), rows(), width()});
    }
  }
  Tensor new_ids(const Shape& shape) { return b_.input(name("ids"), DType::U32, shape); }
  std::string scalar(const char* stem) {
    if (below(3) && !scalars_[stem].empty()) return scalars_[stem];
    return scalars_[stem] = b_.scalar(name(stem), ScalarKind::F32);
  }

  // Everything in the pool is contiguous in its source. A read of a state is stale once a later
  // version of its range was written.
  bool stale(const Tensor& t) const {
    const Source& s = t.view().source;
    const auto at = newest_.find({s.port, s.begin});
    return s.port >= 0 && at != newest_.end() && at->second > s.version;
  }
  template <class Accept>
  Item pick(Accept accept, DType dtype) {
    for (int tries = 0; tries < 24; ++tries) {
      // Mostly what is recent, so that chains grow; sometimes anything, so that diamonds do.
      const int n = int(pool_.size()), near = std::min(n, 5);
      const Item& item = pool_[size_t(below(2) ? n - 1 - below(near) : below(n))];
      if (item.t.dtype() == dtype && !stale(item.t) && accept(item)) return item;
    }
    return {};
  }
  Item any(DType dtype) {
    Item item = pick([](const Item&) { return true; }, dtype);
    if (!item.t.null()) return item;
    item = {new_port(dtype, {rows(), width()}), 1};
    keep(item.t, 1);
    return item;
  }
  Item with_shape(DType dtype, const Shape& shape) {
    Item item = pick([&](const Item& i) { return i.t.shape() == shape; }, dtype);
    if (item.t.null()) item = {new_port(dtype, shape), 1};
    return item;
  }
  Item any_float() { return any(below(4) ? DType::F32 : DType::F16); }
  static Tensor matrix(const Tensor& t) {
    const int64_t w = t.shape().back();
    return tensor::reshape(t, {t.shape().elements() / w, w});
  }

  void step() {
    switch (below(24)) {
      case 0:
      case 1:
      case 2:
        return binary();
      case 3:
        return unary();
      case 4:
        return views();
      case 5:
        return strided();
      case 6:
      case 7:
        return norm();
      case 8:
        return softmax();
      case 9:
      case 10:
        return product();
      case 11:
        return gather();
      case 12:
        return rope();
      case 13:
      case 14:
        return scatter();
      case 15:
      case 16:
        return read();
      case 17:
        return attend();
      case 18:
        return tokens();
      case 19:
      case 20:
        return curve();
      case 21:
        return concat();
      case 22:
        return ranks();
      default:
        return cast();
    }
  }

  void binary() {
    const Item x = any_float();
    Item y = with_shape(x.t.dtype(), x.t.shape());
    if (below(4) == 0) y = with_shape(x.t.dtype(), Shape{x.t.shape().back()});  // broadcast rows
    const bool sum = x.bound * y.bound > kLimit || below(2);
    if (x.bound + y.bound > kLimit) return norm();
    const bool swap = below(2) == 0;
    const Tensor &a = swap ? y.t : x.t, &c = swap ? x.t : y.t;
    if (!sum && x.t.shape() == y.t.shape() && below(2))
      keep(call(Op::swiglu, {a, c}).value(), x.bound * y.bound);
    else
      keep(call(sum ? (below(2) ? Op::add : Op::sub) : Op::mul, {a, c}).value(),
           sum ? x.bound + y.bound : x.bound * y.bound);
  }

  // Functions of one value, whose bounds follow from the operand's.
  void curve() {
    const Item x = any_float();
    switch (below(6)) {
      case 0:
        return keep(call(below(2) ? Op::tanh : Op::sigmoid, {x.t}).value(), 1);
      case 1:
        return keep(call(Op::softplus, {x.t}).value(), x.bound + 1);
      case 2:
        return keep(call(Op::gelu, {x.t}, {{"form", attr_text(below(2) ? "erf" : "tanh")}}).value(),
                    x.bound);
      case 3:
        if (x.bound > 6) return clamp(x);
        return keep(call(Op::exp, {x.t}).value(), std::exp(x.bound));
      case 4: {
        const Item y = any(DType::F32);
        return keep(call(Op::l2_norm, {y.t}, {{"eps", attr_real(1e-3f)}}).value(), 1);
      }
      default:
        return clamp(x);
    }
  }
  void clamp(const Item& x) {
    keep(call(Op::clamp, {x.t}, {{"low", attr_real(-0.5f)}, {"high", attr_real(0.75f)}}).value(),
         1);
  }

  // Along the first axis, or the last ones of a transposed view beside themselves.
  void concat() {
    const Item x = any_float();
    if (x.t.shape().elements() > (large_ ? 8000 : 200)) return;
    const int rank = x.t.shape().rank();
    std::vector<Tensor> xs{x.t, x.t};
    const Item y = with_shape(x.t.dtype(), x.t.shape());
    if (below(2)) xs.push_back(y.t);
    const int axis = below(rank);
    if (rank > 1 && below(2))
      for (Tensor& t : xs) t = tensor::transpose(t, 0, rank - 1);
    keep(call(Op::concat, {xs}, {{"axis", attr_int(axis)}}).value(), std::max(x.bound, y.bound));
  }

  // What ranks or normalises a row: both results of top_k, one of them alone, an element a row.
  void ranks() {
    const Item x = any(DType::F32);
    const int64_t w = x.t.shape().back();
    if (below(3) == 0 && x.bound < 100) {
      const Tensor log = matrix(call(Op::log_softmax, {x.t}).value());
      const double most = 2 * x.bound + std::log(double(w));
      keep(log, most);
      return keep(call(Op::take, {log, new_ids({log.shape()[0]})}).value(), most);
    }
    const Recorded r = call(Op::top_k, {x.t}, {{"k", attr_int(1 + below(int(w)))}});
    const int which = below(3);
    if (which != 0) keep(r.values[0], x.bound);
    if (which != 1) {
      const Tensor ids = tensor::reshape(r.values[1], {r.values[1].shape().elements()});
      // A row for each entry: gathered again and again it would outgrow any machine.
      if (ids.shape().elements() * w <= kMostGathered)
        keep(call(Op::gather_rows, {matrix(x.t), ids}).value(), x.bound);
    }
  }

  void unary() {
    const Item x = any_float();
    if (below(2)) return keep(call(Op::silu, {x.t}).value(), x.bound);
    keep(call(Op::scale, {x.t}, {{"scalar_name", attr_text(scalar("scale"))}}).value(), x.bound);
  }

  // Reshapes, and slices of the leading axis that elementwise operators read in place.
  void views() {
    const Item x = any_float();
    if (below(2)) return keep(tensor::reshape(x.t, {x.t.shape().elements()}), x.bound);
    const int64_t n = x.t.shape()[0], start = below(int(n)),
                  end = start + 1 + below(int(n - start));
    const Tensor part = tensor::slice(x.t, 0, start, end);
    if (part.view().contiguous()) return keep(part, x.bound);
    keep(call(Op::silu, {part}).value(), x.bound);
  }

  void strided() {
    const Item x = any_float();
    const int rank = x.t.shape().rank();
    Tensor view = x.t;
    if (rank > 1) view = tensor::transpose(view, 0, rank - 1);
    if (below(2)) view = tensor::slice(view, 0, below(int(view.shape()[0])), view.shape()[0]);
    if (below(3) == 0) {
      std::vector<int64_t> wide{int64_t(2)};
      for (int64_t d : view.shape()) wide.push_back(d);
      view = tensor::broadcast(view, Shape(wide));
    }
    if (view.shape().elements() <= (large_ ? 20000 : 400))
      keep(view.view().contiguous() ? view : call(Op::contiguous, {view}).value(), x.bound);
  }

  void norm() {
    const Item x = any_float();
    const Item gain = with_shape(DType::F32, Shape{x.t.shape().back()});
    const double most = std::sqrt(double(x.t.shape().back())) * gain.bound;
    if (most > kLimit) return softmax();
    keep(call(Op::rms_norm, {x.t, gain.t}, {{"eps", attr_real(1e-3f)}}).value(), most);
  }

  void softmax() { keep(call(Op::softmax, {any(DType::F32).t}).value(), 1); }

  void product() {
    const Item x = any(DType::F32);
    const Tensor m = matrix(x.t);
    const int64_t k = m.shape()[1], n = width();
    const bool nk = below(2);
    const DType dtype = below(3) ? DType::F32 : DType::F16;
    const Item w = with_shape(dtype, nk ? Shape{n, k} : Shape{k, n});
    const double bound = x.bound * w.bound * double(k);
    if (bound > kLimit) return softmax();
    keep(call(Op::matmul, {m, w.t}, {{"w_order", attr_text(nk ? "nk" : "kn")}}).value(), bound);
  }

  void gather() {
    const Item x = any_float();
    const Tensor table = matrix(x.t);
    const Shape shape = below(2) ? Shape{rows()} : Shape{rows(), rows()};
    keep(call(Op::gather_rows, {table, new_ids(shape)}).value(), x.bound);
  }

  void rope() {
    const Item x = any(DType::F32);
    const int64_t w = x.t.shape().back(), n = x.t.shape().elements() / w;
    if (w < 2 || 2 * x.bound > kLimit) return;
    const int64_t dim = 2 * (1 + below(int(w / 2)));
    keep(call(Op::rope, {x.t, new_ids({below(2) ? n : 1}), Operand()},
              {{"rotary_dim", attr_int(dim)},
               {"base_name", attr_text(scalar("base"))},
               {"pairing", attr_text(below(2) ? "halves" : "adjacent")}})
             .value(),
         2 * x.bound);
  }

  Cache& cache() {
    if (!caches_.empty() && below(4)) return caches_[size_t(below(int(caches_.size())))];
    return new_cache(DType::F32, {2 + below(5), width()});
  }
  Cache& new_cache(DType dtype, Shape shape) {
    Cache c;
    if (below(2)) {
      c.parts.push_back(b_.state(name("s"), dtype, shape));
    } else {
      const int layers = 2 + below(2);
      std::vector<int64_t> dims{int64_t(layers)};
      for (int64_t d : shape) dims.push_back(d);
      const State whole = b_.state(name("s"), dtype, Shape(dims));
      for (int layer = 0; layer < layers; ++layer)
        c.parts.push_back(tensor::layer_state(whole, layer));
    }
    caches_.push_back(c);
    read_part(caches_.back(), 0);
    return caches_.back();
  }
  // Read at once, so that no declared state stays unused.
  void read_part(Cache& c, int part) {
    const Tensor t = tensor::read_state(c.parts[size_t(part)]);
    const Tensor flat = tensor::reshape(t, {t.shape().elements()});
    if (t.dtype() == DType::F16 || below(2)) keep(call(Op::silu, {flat}).value(), c.bound);
    else keep(call(Op::gather_rows, {matrix(t), new_ids({rows()})}).value(), c.bound);
    keep(t, c.bound);
  }

  void write_part(Cache& c, int part, const Tensor& values, double bound) {
    State& s = c.parts[size_t(part)];
    const int64_t w = s.shape().elements() / s.shape()[0];
    const int64_t n = values.shape().elements() / w;
    s = call(Op::scatter_rows, {s, tensor::reshape(values, {n, w}), new_ids({n})}).state;
    newest_[{s.view().source.port, s.view().source.begin}] = s.version();
    c.bound = std::max(c.bound, bound);
    wrote_state_ = true;
  }

  void scatter() {
    Cache& c = cache();
    const int part = below(int(c.parts.size()));
    const Shape& shape = c.parts[size_t(part)].shape();
    const int64_t w = shape.elements() / shape[0];
    const DType dtype = c.parts[size_t(part)].dtype();
    const auto fits = [&](const Item& i) { return i.t.shape().back() == w; };
    Item rows_item = pick(fits, dtype);
    if (rows_item.t.null()) rows_item = {new_port(dtype, {rows(), w}), 1};
    write_part(c, part, rows_item.t, rows_item.bound);
  }

  void read() {
    Cache& c = cache();
    read_part(c, below(int(c.parts.size())));
  }

  void attend() {
    const int64_t heads = 1 + below(2), dim = 8, tokens = 1 + below(3);
    const DType dtype = below(2) ? DType::F32 : DType::F16;
    const Shape shape{4, heads, dim};
    new_cache(dtype, shape);
    new_cache(dtype, shape);
    Cache &k = caches_[caches_.size() - 2], &v = caches_[caches_.size() - 1];
    write_part(k, 0, new_port(dtype, {tokens, heads * dim}), 1);
    const Item q = with_shape(DType::F32, Shape{2 * heads, dim});
    keep(call(Op::attention,
              {q.t, k.parts[0], v.parts[0], new_ids({1}), Operand(), Operand(), Operand()},
              {{"scale_name", attr_text(scalar("scale"))}})
             .value(),
         v.bound);
  }

  // Tokens as ids of a computed table, as a model feeds them back.
  void tokens() {
    const Item x = any(DType::F32), table = any(DType::F32);
    const Tensor ids = call(Op::argmax, {x.t}).value();
    keep(call(Op::gather_rows, {matrix(table.t), ids}).value(), table.bound);
    if (below(3) == 0) output(ids);
  }

  void cast() {
    const Item x = any_float();
    Attr to;
    to.set = true;
    to.dtype = x.t.dtype() == DType::F32 ? DType::F16 : DType::F32;
    keep(call(Op::cast, {x.t}, {{"to", to}}).value(), x.bound);
  }

  void output(const Tensor& t) {
    read_.insert(t.view().source.node);
    b_.output(name("out"), t);
    ++outputs_;
  }
  bool is_leaf(const Tensor& t) const {
    return t.view().source.port < 0 && !read_.contains(t.view().source.node);
  }
  void add_output() {
    const auto computed = [](const Item& i) { return i.t.view().source.port < 0; };
    const Item x = pick(computed, below(5) ? DType::F32 : DType::F16);
    if (x.t.null()) return;
    output(x.t);
    if (below(5) == 0) output(tensor::reshape(x.t, {x.t.shape().elements()}));
    if (below(5) == 0) output(tensor::slice(x.t, 0, 0, 1 + below(int(x.t.shape()[0]))));
  }

  Builder b_;
  std::mt19937_64 r_;
  std::vector<Item> pool_;
  std::vector<Cache> caches_;
  std::vector<Tensor> ports_;
  std::set<int> used_, read_;                      // ports, nodes
  std::map<std::pair<int, int64_t>, int> newest_;  // version by port and begin of a range
  std::map<std::string, std::string> scalars_;
  bool large_;
  int names_ = 0, outputs_ = 0;
  bool wrote_state_ = false;
};

// Records one random graph into a fresh builder.
inline void generate(const Builder& b, uint64_t seed, int max_nodes = 40) {
  Generator(b, seed).run(max_nodes);
}

// The content of a port: numbers in [-1, 1), ids that are mostly small and now and then 2^32 - 1.
inline std::vector<uint8_t> data_of(const PortDesc& port, uint64_t seed) {
  uint64_t mix = seed;
  for (char c : port.name) mix = (mix ^ uint64_t(uint8_t(c))) * 0x100000001b3;
  std::mt19937_64 r(mix);
  const size_t n = size_t(port.shape.elements());
  std::vector<uint8_t> bytes(n * size_t(size_of(port.dtype)));
  for (size_t i = 0; i < n; ++i) {
    const float v = float(int64_t(r() >> 40)) * 0x1p-23f - 1;
    const uint32_t id = r() % 16 ? uint32_t(r() % 5) : 0xffffffff;
    const uint16_t half = f16_from_f32(v);
    switch (port.dtype) {
      case DType::F32:
        std::memcpy(&bytes[i * 4], &v, 4);
        break;
      case DType::U32:
        std::memcpy(&bytes[i * 4], &id, 4);
        break;
      default:
        std::memcpy(&bytes[i * 2], &half, 2);
        break;  // f16 alone is drawn
    }
  }
  return bytes;
}

// Rope bases are 10000 or so, the other scalars below 1.
inline ScalarValue scalar_of(const ScalarDesc& s, uint64_t seed) {
  std::mt19937_64 r(seed + s.name.size());
  const float unit = float(r() >> 40) * 0x1p-24f;
  return f32(s.name.starts_with("base") ? 100 + 10000 * unit : unit - 0.25f);
}

}  // namespace random_graph
