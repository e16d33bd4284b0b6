// Python objects held by the library, dropped only by Python's own threads; and signals during a
// wait.
#include <atomic>
#include <mutex>

#include "bindings/bindings.h"

namespace accel::bindings {
namespace {

// Not freed at exit: library threads may let go after the module's statics would be gone.
struct Graveyard {
  std::mutex mutex;
  std::vector<PyObject*> objects;
  std::atomic<bool> any{false};
};
Graveyard& graveyard() {
  static auto* g = new Graveyard();
  return *g;
}

void bury(PyObject* object) {
  Graveyard& g = graveyard();
  std::lock_guard lock(g.mutex);
  g.objects.push_back(object);
  g.any.store(true, std::memory_order_release);
}

}  // namespace

std::shared_ptr<void> keep_alive(py::object object) {
  PyObject* raw = object.release().ptr();
  return std::shared_ptr<void>(raw, [](void* p) { bury(static_cast<PyObject*>(p)); });
}

void sweep() {
  report_dropped_fences();
  Graveyard& g = graveyard();
  if (!g.any.load(std::memory_order_acquire)) return;
  std::vector<PyObject*> objects;
  {
    std::lock_guard lock(g.mutex);
    objects.swap(g.objects);
    g.any.store(false, std::memory_order_release);
  }
  // Outside the lock: a drop may run any Python code, this library included. An error on its way
  // stays.
  py::error_scope scope;
  for (PyObject* object : objects) Py_DECREF(object);
}

void dealloc_and_sweep(PyObject* self) {
  py::detail::pybind11_object_dealloc(self);
  sweep();
}

void poll_signals() {
  py::gil_scoped_acquire acquire;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

}  // namespace accel::bindings
