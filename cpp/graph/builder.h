// Records one graph. Mistakes are collected with the caller's line; a refused call returns poison.
// A builder and its tensors belong to one thread.
#pragma once
#include <map>
#include <memory>
#include <optional>

#include "graph/graph.h"

namespace accel {

class Builder;
struct BuilderState;
using BuilderPtr = std::shared_ptr<BuilderState>;

// Immutable value of one builder. A default-constructed tensor is the null handle.
class Tensor {
 public:
  Tensor() = default;
  Tensor(BuilderPtr b, View v) : builder_(std::move(b)), view_(std::move(v)), valid_(true) {}
  static Tensor poison(BuilderPtr b) {
    Tensor t;
    t.builder_ = std::move(b);
    return t;
  }
  bool null() const { return !builder_; }
  bool valid() const { return builder_ && valid_; }
  // Throw the collected graph error when poisoned.
  DType dtype() const;
  const Shape& shape() const;
  std::string to_string() const;  // "f32[4 8]", "<invalid tensor>", "<null tensor>"
  const View& view() const { return view_; }
  const BuilderPtr& builder() const { return builder_; }

 private:
  BuilderPtr builder_;
  View view_;
  bool valid_ = false;
};

class State {
 public:
  State() = default;
  State(BuilderPtr b, View v) : builder_(std::move(b)), view_(std::move(v)), valid_(true) {}
  static State poison(BuilderPtr b) {
    State s;
    s.builder_ = std::move(b);
    return s;
  }
  bool null() const { return !builder_; }
  bool valid() const { return builder_ && valid_; }
  DType dtype() const;
  const Shape& shape() const;
  const std::string& name() const;
  int version() const;
  std::string to_string() const;
  const View& view() const { return view_; }  // source.port, source.begin/count, source.version
  const BuilderPtr& builder() const { return builder_; }

 private:
  BuilderPtr builder_;
  View view_;
  bool valid_ = false;
};

struct Quantized {
  Tensor quants, scales;
};
struct Int4 {
  Tensor codes, scales, zeros, biases;  // exactly one of zeros and biases
  int64_t weights = 0;
  int64_t group = 128;
};

// One argument of record(): a tensor, a state, a bundle, several tensors, or nothing.
struct Operand {
  enum Kind : uint8_t { absent, tensor, state, int4, quantized, tensors } kind = absent;
  Tensor t;
  State s;
  Int4 i;
  Quantized q;
  std::vector<Tensor> ts;
  Operand() = default;
  Operand(Tensor v) : kind(v.null() ? absent : tensor), t(std::move(v)) {}  // NOLINT: implicit
  Operand(State v) : kind(v.null() ? absent : state), s(std::move(v)) {}    // NOLINT
  Operand(Int4 v) : kind(int4), i(std::move(v)) {}                          // NOLINT
  Operand(Quantized v) : kind(quantized), q(std::move(v)) {}                // NOLINT
  Operand(std::vector<Tensor> v) : kind(tensors), ts(std::move(v)) {}       // NOLINT
};

// What record() gives back: the results, and the next version of the state it wrote.
struct Recorded {
  std::vector<Tensor> values;
  State state;
  Tensor value() const { return values.empty() ? Tensor() : values[0]; }
};

// An attribute as given by the caller; unset ones take the definition's default.
using AttrArgs = std::map<std::string, Attr>;

class Builder {
 public:
  explicit Builder(std::string label = "", std::shared_ptr<void> runtime = nullptr);
  explicit Builder(BuilderPtr p) : p_(std::move(p)) {}

  Tensor input(const std::string& name, DType, const Shape&,
               Site = std::source_location::current());
  Tensor weight(const std::string& name, DType, const Shape&,
                Site = std::source_location::current());
  State state(const std::string& name, DType, const Shape&, Site = std::source_location::current());
  std::string scalar(const std::string& name, ScalarKind, Site = std::source_location::current());
  void output(const std::string& name, const Tensor&, Site = std::source_location::current());
  // CONTRACT 6: planes declared under name.codes, name.scales, name.zeros or name.biases.
  Int4 int4(const std::string& name, const Shape&, int64_t group = 128, bool affine = false,
            DType dtype = DType::F16, Site = std::source_location::current());
  Quantized quantized(const std::string& name, const Shape&,
                      Site = std::source_location::current());

  // Every operator goes through here. Throws GraphError only when no operand carries a builder.
  static Recorded record(Op op, const std::vector<Operand>& operands, AttrArgs attrs, Site site);
  // Records a diagnostic made elsewhere (composites, views).
  static void refuse(const BuilderPtr& b, Diagnostic d);

  // Everything collected so far, or nothing; compile() raises the same set.
  std::optional<Error> err() const;
  // Checks that hold for a whole graph (CONTRACT 6, 7), then a copy of the graph. Throws
  // graph_error.
  Graph finish() const;
  const std::string& label() const;
  const std::shared_ptr<void>& runtime() const;  // opaque: the runtime that made this builder
  const BuilderPtr& ptr() const { return p_; }

 private:
  BuilderPtr p_;
};

namespace tensor {

// Views (CONTRACT 8) and states (7): no node, no copy.
Tensor reshape(const Tensor& x, const Shape& shape, Site = std::source_location::current());
Tensor permute(const Tensor& x, const std::vector<int64_t>& axes,
               Site = std::source_location::current());
Tensor transpose(const Tensor& x, int64_t axis_a, int64_t axis_b,
                 Site = std::source_location::current());
Tensor slice(const Tensor& x, int64_t axis, int64_t start, int64_t end,
             Site = std::source_location::current());
Tensor broadcast(const Tensor& x, const Shape& shape, Site = std::source_location::current());
Tensor contiguous(const Tensor& x, Site = std::source_location::current());
Tensor cast(const Tensor& x, DType to, Site = std::source_location::current());
Tensor read_state(const State& s, Site = std::source_location::current());
State layer_state(const State& s, int64_t layer, Site = std::source_location::current());

}  // namespace tensor
}  // namespace accel
