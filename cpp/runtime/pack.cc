// Plan::pack: weights copied once into the layouts that kernel rows named (CONTRACT E14).
#include <chrono>
#include <cstring>

#include "exec/fork.h"
#include "runtime/plan_impl.h"

namespace accel {

// Blocks [rows][panels] to [panels][rows].
static void transpose_blocks(const char* from, const Packing& p, int64_t bytes, char* to) {
  const int64_t block = bytes / (p.rows * p.panels);
  for (int64_t panel = 0; panel < p.panels; ++panel)
    for (int64_t row = 0; row < p.rows; ++row)
      std::memcpy(to + (panel * p.rows + row) * block, from + (row * p.panels + panel) * block,
                  size_t(block));
}

Packed Plan::pack(const BindingMap& buffers) {
  const auto start = std::chrono::steady_clock::now();
  const DevicePtr& device = p_->runtime->device();
  device->check_alive();
  if (closed())
    throw bind_error("lifetime", "plan",
                     labelled("plan", p_->data.label) + " is closed and must be open");
  Impl::Problems problems;
  std::vector<int> ports;
  for (const auto& [name, view] : buffers) {
    ports.push_back(p_->port_of(name, problems));
    if (ports.back() >= 0) p_->check_plane(ports.back(), view, problems);
  }
  if (!problems.empty()) throw bind_error(std::move(problems));
  Packed packed;
  auto port = ports.begin();
  for (const auto& [name, view] : buffers) {
    const PortDesc& d = p_->data.graph.ports[size_t(*port++)];
    packed.buffers[name] = view;
    if (view.buffer->layout == d.layout) continue;
    if (view.buffer->layout != "plain") {
      p_->check_view(int(&d - p_->data.graph.ports.data()), view, problems);
      continue;
    }
    const int64_t n = d.shape.elements(), bytes = n * size_of(d.dtype);
    BufferPtr buffer = device->new_buffer(d.dtype, n, d.name);
    view.buffer->wait_idle();
    const char* from =
        static_cast<const char*>(view.buffer->host()) + view.offset * size_of(d.dtype);
    transpose_blocks(from, p_->data.packings[size_t(&d - p_->data.graph.ports.data())], bytes,
                     static_cast<char*>(buffer->host()));
    buffer->layout = d.layout;
    packed.buffers[name] = {buffer, d.dtype, 0, n};
    packed.bytes += bytes;
  }
  if (!problems.empty()) throw bind_error(std::move(problems));
  packed.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return packed;
}

}  // namespace accel
