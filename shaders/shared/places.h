// Where a kernel of a GPU finds what it gets besides its operands, as indices of buffers.
#pragma once
#define PARAMS 27   // constant: the operator's struct of shared/params
#define SCALARS 28  // constant u32*: runtime scalars in attribute order, as bits
#define SCRATCH 29  // device: of the command, shared by its launches
