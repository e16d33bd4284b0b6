// Queue and Fence. Waiting looks for signals; a failed fence that nobody waited for is reported.
#include <cmath>

#include "bindings/bindings.h"
#include "exec/release.h"

namespace accel::bindings {
namespace {

// ---------------------------------------------------------------- queue

// What to copy, and where to; checked before it is queued.
struct Write {
  BufferPtr buffer;
  int64_t begin = 0;  // bytes
  std::vector<char> data;
};

void require_own(const char* call, const Queue& q, const BufferPtr& buffer) {
  if (buffer->device() != q.device)
    throw bind_error("foreign", "buffer",
                     std::string(call) + ": " + labelled("buffer", buffer->label) +
                         " is of another device and must be of the queue's");
}

void require_open_queue(const char* call, const Queue& q) {
  if (q.closed())
    throw bind_error(
        "lifetime", "queue",
        std::string(call) + ": " + labelled("queue", q.label) + " is closed and must be open");
}

Write checked_write(const Queue& q, py::handle buffer, py::handle offset, py::handle host) {
  const char* const call = "write_buffer";
  Write w;
  w.buffer = pointer_arg<Buffer>({call, "buffer"}, buffer, "a Buffer");
  require_open(call, w.buffer);
  require_own(call, q, w.buffer);
  const int64_t at = int_arg({call, "offset"}, offset);
  const HostArray a = array_arg({call, "host"}, host);
  const Buffer& b = *w.buffer;
  if (a.dtype != b.dtype)
    throw bind_error("dtype", "host",
                     "write_buffer: host is " + a.type_text() + " and must be " + name_of(b.dtype) +
                         ", as the buffer is");
  if (at < 0 || at > b.count || a.count > b.count - at)
    throw bind_error("too_small", "buffer",
                     "write_buffer: buffer has " + std::to_string(b.count) +
                         " elements and must hold " + std::to_string(a.count) + " from offset " +
                         std::to_string(at));
  if (!b.writable)
    throw bind_error("read_only", "buffer",
                     "write_buffer: buffer wraps read-only memory and must be writable");
  const py::array packed = a.contiguous ? a.array : py::array::ensure(a.array, py::array::c_style);
  const char* bytes = static_cast<const char*>(packed.data());
  w.begin = at * size_of(b.dtype);
  w.data.assign(bytes, bytes + a.count * size_of(b.dtype));
  return w;
}

PyFence write_buffer(Queue& q, py::object buffer, py::object offset, py::object host) {
  Write w = checked_write(q, buffer, offset, host);
  return PyFence(unlocked([&] {
    auto holding = std::make_shared<Holding>(w.buffer);
    // The bytes outlive a close of the buffer, and the buffer counts as used.
    struct Keep {
      std::shared_ptr<Holding> holding;
      std::shared_ptr<void> memory;
    };
    auto keep = std::make_shared<Keep>(Keep{holding, memory_of("write_buffer", w.buffer)});
    char* const to = static_cast<char*>(keep->memory.get()) + w.begin;
    return q.write(to, std::move(w.data), std::move(keep));
  }));
}

py::object read_buffer(Queue& q, py::object buffer, py::object out) {
  const BufferPtr b = pointer_arg<Buffer>({"read_buffer", "buffer"}, buffer, "a Buffer");
  require_open("read_buffer", b);
  require_own("read_buffer", q, b);
  require_open_queue("read_buffer", q);
  unlocked([&] { q.flush(poll_signals); });
  return read_into("read_buffer", b, out);
}

void flush(Queue& q) {
  require_open_queue("flush", q);
  unlocked([&] { q.flush(poll_signals); });
}

// ---------------------------------------------------------------- fence

double seconds_arg(py::handle timeout) {
  if (timeout.is_none()) return -1;
  const double s = real_arg({"wait", "timeout"}, timeout);
  if (!(s >= 0))
    throw attr_error("wait", "timeout",
                     "wait: timeout is " + std::string(py::str(timeout)) +
                         " and must be None or 0 or more seconds");
  return s;
}

bool wait(PyFence& f, py::object timeout) {
  const double seconds = seconds_arg(timeout);
  return unlocked([&] { return f.fence->wait(seconds, poll_signals); });
}

py::object stats_of(const PyFence& f) {
  const FenceStats s = f.fence->stats();
  return make_named("FenceStats", s.queued_ns, s.started_ns, s.finished_ns);
}

// ---------------------------------------------------------------- dropped fences

// Fences that Python let go of before they were done: looked at again at the next call.
std::vector<FencePtr>& dropped() {
  static auto* all = new std::vector<FencePtr>();
  return *all;
}

// Needs the interpreter lock.
void report(const FencePtr& fence) {
  const std::optional<Error> error = fence->error();
  if (!error || fence->observed()) return;
  const std::string text =
      "a failed submission was dropped without wait(): " + std::string(error->what());
  if (PyErr_WarnEx(PyExc_ResourceWarning, text.c_str(), 1) != 0) PyErr_WriteUnraisable(nullptr);
}

}  // namespace

void report_dropped_fences() {
  std::vector<FencePtr>& all = dropped();
  if (all.empty()) return;
  py::error_scope scope;  // an object may be freed while an error is on its way
  std::vector<FencePtr> open;
  open.swap(all);
  for (FencePtr& fence : open) {
    if (fence->done()) report(fence);
    else all.push_back(std::move(fence));
  }
}

PyFence::PyFence(FencePtr f) : fence(std::move(f)) {}

PyFence::~PyFence() {
  if (!fence) return;  // moved from
  py::error_scope scope;
  try {
    if (fence->done()) report(fence);
    else dropped().push_back(std::move(fence));
  } catch (const Error&) {
    // A forked child may only drop objects.
  }
}

FencePtr fence_arg(Arg a, py::handle value) {
  return object_arg<PyFence>(a, value, "a Fence").fence;
}

void add_queues(py::module_& m) {
  using namespace py::literals;
  py::class_<Queue, QueuePtr>(m, "Queue", py::is_final(), sweeping(),
                              py::release_gil_before_calling_cpp_dtor(),
                              "Submissions of one queue are totally ordered.")
      .def_readonly("label", &Queue::label)
      .def_readonly("device", &Queue::device)
      .def_property_readonly("closed",
                             [](const Queue& q) { return unlocked([&] { return q.closed(); }); })
      .def("write_buffer", write_buffer, "buffer"_a, "offset"_a, "host"_a,
           "Queue a write of host, which is copied before this returns; offset in elements.")
      .def("read_buffer", read_buffer, "buffer"_a, "out"_a = py::none(),
           "Flush, then read the buffer.")
      .def("flush", flush, "Wait until everything submitted before has finished.")
      .def("close", [](Queue& q) { unlocked([&] { q.close(); }); });
  py::class_<PyFence>(m, "Fence", py::is_final(), sweeping(), "The end of one submission.")
      .def("wait", wait, "timeout"_a = py::none(),
           "Wait for the end and raise what went wrong; False if the seconds run out first.")
      .def_property_readonly("done", [](const PyFence& f) { return f.fence->done(); })
      .def_property_readonly("stats", stats_of);
}

}  // namespace accel::bindings
