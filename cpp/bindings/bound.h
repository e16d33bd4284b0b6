// The two dicts of bind and submit as C++ values, with everything that is wrong with them. A
// refused value is handed on as one that the plan refuses too, so that a set with problems never
// takes effect and the plan adds its own.
#pragma once
#include <set>

#include "bindings/bindings.h"

namespace accel::bindings {

class BoundValues {
 public:
  explicit BoundValues(const Plan& plan, const char* call) : plan_(plan), call_(call) {}

  // Need the interpreter lock; raise TypeError for a value of a type that is never accepted.
  void add_buffers(py::handle dict);
  void add_scalars(py::handle dict);
  void add_buffer(const std::string& name, py::handle value);
  void add_scalar(const std::string& name, py::handle value);

  // Makes buffers over the arrays; without the interpreter lock.
  void wrap();

  const std::vector<Problem>& problems() const { return problems_; }
  // The problems of these values and those that `found` holds about others.
  Error merged(const Error& found) const;

  BindingMap buffers;
  ScalarMap scalars;

 private:
  struct Array {
    std::string name;
    void* data;
    DType dtype;
    int64_t count;
    bool writable;
    std::shared_ptr<void> owner;
  };
  void add_array(const std::string& name, HostArray array);
  void refuse_buffer(Problem problem);
  void refuse_scalar(Problem problem, ScalarKind kind);

  const Plan& plan_;
  const char* call_;
  std::vector<Array> arrays_;
  std::vector<Problem> problems_;
  std::set<std::string> refused_;
};

}  // namespace accel::bindings
