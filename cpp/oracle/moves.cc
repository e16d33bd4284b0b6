// What only moves data: contiguous, copy, the gathers, scatter_rows (CONTRACT 7, 8.3, 10), take and
// concat (E7).
#include <algorithm>

#include "oracle/node.h"

namespace accel::oracle {

// The walk has already put the view in index order.
void eval_contiguous(Args& a) {
  std::copy(a.in[0].begin(), a.in[0].end(), a.out[0].begin());
}
void eval_copy(Args& a) {
  std::copy(a.in[0].begin(), a.in[0].end(), a.out[0].begin());
}

void eval_gather_rows(Args& a) {
  const auto table = a.operand("table"), ids = a.operand("ids");
  const int64_t rows = a.type("table").shape[0], width = a.type("table").shape[1];
  for (size_t r = 0; r < ids.size(); ++r)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t id = int64_t(ids[r]);
      a.out[0][r * size_t(width) + size_t(c)] = id < rows ? table[size_t(id * width + c)] : 0.0;
    }
}

void eval_quant_gather_rows(Args& a) {
  const auto quants = a.operand("table.quants"), scales = a.operand("table.scales"),
             ids = a.operand("ids");
  const int64_t rows = a.type("table.quants").shape[0], width = a.type("table.quants").shape[1];
  for (size_t r = 0; r < ids.size(); ++r)
    for (int64_t c = 0; c < width; ++c) {
      const int64_t id = int64_t(ids[r]), i = id * width + c;
      // 8 bits times 11 bits: exact in f32.
      a.out[0][r * size_t(width) + size_t(c)] =
          id < rows ? quants[size_t(i)] * scales[size_t(i / 32)] : 0.0;
    }
}

// By coordinates: outer axes, then the operands' own extents along the axis, then what lies within.
void eval_concat(Args& a) {
  const Shape& result = a.call.results[0].shape;
  const int64_t given = a.attribute("axis").i;
  const int axis = int(given < 0 ? given + result.rank() : given);
  int64_t outer = 1, inner = 1;
  for (int i = 0; i < axis; ++i) outer *= result[i];
  for (int i = axis + 1; i < result.rank(); ++i) inner *= result[i];
  int64_t first = 0;
  for (size_t x = 0; x < a.in.size(); ++x) {
    const int64_t extent = a.call.in[x].shape[axis];
    for (int64_t o = 0; o < outer; ++o)
      for (int64_t e = 0; e < extent; ++e)
        for (int64_t i = 0; i < inner; ++i)
          a.out[0][size_t((o * result[axis] + first + e) * inner + i)] =
              a.in[x][size_t((o * extent + e) * inner + i)];
    first += extent;
  }
}

void eval_take(Args& a) {
  const auto x = a.operand("x"), ids = a.operand("ids");
  const int64_t width = a.type("x").shape[1];
  for (size_t r = 0; r < ids.size(); ++r) {
    const int64_t id = int64_t(ids[r]);
    a.out[0][r] = id < width ? x[r * size_t(width) + size_t(id)] : 0.0;
  }
}

void eval_scatter_rows(Args& a) {
  const auto rows = a.operand("rows"), ids = a.operand("ids");
  const In& state = a.call.in[size_t(a.call.def->writes)];
  const int64_t capacity = state.shape[0], width = state.shape.elements() / capacity;
  // Ascending: of duplicate ids the last row wins. An id beyond the capacity writes nothing.
  for (size_t r = 0; r < ids.size(); ++r) {
    const int64_t id = int64_t(ids[r]);
    if (id >= capacity) continue;
    for (int64_t c = 0; c < width; ++c) {
      const double v = rows[r * size_t(width) + size_t(c)];
      a.written[size_t(id * width + c)] = state.dtype == DType::F32 ? double(float(v)) : v;
    }
  }
}

}  // namespace accel::oracle
