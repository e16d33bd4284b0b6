// Parameters of concat: the head, then one part an operand. An axis of a part has an extent and the
// strides, in elements, of the operand and of the result; axes that run on are merged, and unused
// ones come first with extent 1. `first` is where the part begins in the result.
#pragma once
struct ConcatParams {
  unsigned n, parts;
};
struct ConcatPart {
  unsigned n, first, extent[8], from[8], to[8];
};
static_assert(sizeof(ConcatParams) == 8, "read by kernels of three compilers");
static_assert(sizeof(ConcatPart) == 104, "read by kernels of three compilers");
