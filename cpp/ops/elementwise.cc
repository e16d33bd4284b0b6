#include "ops/elementwise.h"

namespace accel {

// The call that makes an operand fit, written out: contiguous(broadcast(y, [4, 8])).
static std::string packing_call(const std::string& name, const In& in, const Shape& result) {
  if (in.shape == result) return "contiguous(" + name + ")";
  std::string shape = "[";
  for (int i = 0; i < result.rank(); ++i) shape += (i ? ", " : "") + std::to_string(result[i]);
  return "contiguous(broadcast(" + name + ", " + shape + "]))";
}

void require_runs(const Call& c, const Shape& result) {
  for (size_t i = 0; i < c.in.size(); ++i) {
    if (!c.in[i].present || run_of(result, c.in[i]).ok) continue;
    const std::string name = operand_name(c, int(i));
    refuse(ErrorKind::shape, name,
           "is " + std::string(name_of(c.in[i].dtype)) + c.in[i].shape.to_string() +
               " with strides " + text_of(c.in[i].strides) + " and offset " +
               std::to_string(c.in[i].offset) +
               " and must be one contiguous run repeated over the result " + result.to_string() +
               "; " + packing_call(name, c.in[i], result) + " makes it so");
  }
}

std::vector<Type> infer_unary(const Call& c) {
  require_dtype_in(c, 0, {DType::F32, DType::F16});
  require_runs(c, c.in[0].shape);
  return {Type{c.in[0].dtype, c.in[0].shape}};
}

std::vector<Type> infer_binary(const Call& c) {
  require_dtype_in(c, 0, {DType::F32, DType::F16});
  if (c.in[1].dtype != c.in[0].dtype)
    refuse_dtype(c, 1,
                 std::string(name_of(c.in[0].dtype)) + ", as " + operand_name(c, 0) + " is" +
                     cast_hint(c, 1, c.in[0].dtype));
  const Shape result = broadcast_shape(c, 0, 1);
  require_runs(c, result);
  return {Type{c.in[0].dtype, result}};
}

void elementwise_params(const Call& c, Params& p) {
  const Shape& result = c.results[0].shape;
  ElementwiseParams out = {};
  out.n = uint32_t(result.elements());
  out.x_block = uint32_t(run_of(result, c.in[0]).block);
  out.y_block = c.in.size() > 1 ? uint32_t(run_of(result, c.in[1]).block) : 1;
  p.put(out);
}

}  // namespace accel
