// Buckets and BlockPool: host helpers that touch no device.
#include "bindings/bindings.h"
#include "runtime/block_pool.h"
#include "runtime/buckets.h"

namespace accel::bindings {
namespace {

BlockPool::Pages pages_arg(Arg a, py::handle value) {
  return value.is_none() ? BlockPool::Pages() : ints_arg(a, value);
}

py::list to_list(const std::vector<int64_t>& values) {
  py::list list(values.size());
  for (size_t i = 0; i < values.size(); ++i) list[i] = py::int_(values[i]);
  return list;
}

// The list given when it is long enough, as the core's own answer is then.
py::object grow(BlockPool& pool, py::object pages, py::object n) {
  const BlockPool::Pages given = pages_arg({"grow", "pages"}, pages);
  const int64_t length = int_arg({"grow", "n"}, n);
  const BlockPool::Pages grown = unlocked([&] { return pool.grow(given, length); });
  if (grown.size() == given.size() && !pages.is_none()) return pages;
  return to_list(grown);
}

void add_block_pool(py::module_& m) {
  using namespace py::literals;
  py::class_<BlockPool>(m, "BlockPool", py::is_final(),
                        "Hands out the blocks of a paged cache; safe to share between threads.\n\n"
                        "It knows no fences: on one queue order protects a block that is used "
                        "again, otherwise wait\nbefore freeing. A refused call changes nothing.")
      .def(py::init([](py::object blocks, py::object positions) {
             return std::make_unique<BlockPool>(int_arg({"BlockPool", "blocks"}, blocks),
                                                int_arg({"BlockPool", "positions"}, positions));
           }),
           "blocks"_a, "positions"_a)
      .def("grow", grow, "pages"_a, "n"_a,
           "Pages that hold n positions: the list given when it is long enough, else a longer copy."
           "\nNone is an empty list.")
      .def(
          "free",
          [](BlockPool& pool, py::object pages) {
            const BlockPool::Pages given = pages_arg({"free", "pages"}, pages);
            unlocked([&] { pool.free(given); });
          },
          "pages"_a, "Give pages back, all or none.")
      .def_property_readonly("block_size", &BlockPool::block_size, "Positions of one block.")
      .def_property_readonly(
          "available", [](BlockPool& pool) { return unlocked([&] { return pool.available(); }); },
          "Blocks that are free.")
      .def(
          "positions",
          [](const BlockPool& pool, py::object pages) {
            return pool.positions(pages_arg({"positions", "pages"}, pages));
          },
          "pages"_a, "Positions that the pages hold.")
      .def("__repr__", [](BlockPool& pool) {
        const int64_t left = unlocked([&] { return pool.available(); });
        return "<accel.tensor.BlockPool " + std::to_string(pool.blocks()) + " blocks of " +
               std::to_string(pool.block_size()) + ", " + std::to_string(left) + " free>";
      });
}

}  // namespace

void add_pools(py::module_& m) {
  using namespace py::literals;
  py::class_<Buckets>(m, "Buckets", py::is_final(),
                      "A set of sizes that a length is rounded up to; it never truncates.")
      .def(py::init([](py::args sizes) {
        return std::make_unique<Buckets>(ints_arg({"Buckets", "sizes"}, sizes));
      }))
      .def(
          "sizes", [](const Buckets& b) { return to_list(b.sizes()); }, "The sizes, ascending.")
      .def(
          "for_length",
          [](const Buckets& b, py::object n) {
            return b.for_length(int_arg({"for_length", "n"}, n));
          },
          "n"_a, "The smallest size that is n or more.")
      .def("__repr__",
           [](const Buckets& b) { return "<accel.tensor.Buckets " + text_of(b.sizes()) + ">"; });
  add_block_pool(m);
}

}  // namespace accel::bindings
