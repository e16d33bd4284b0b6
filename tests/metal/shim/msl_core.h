// A freestanding stand-in for <metal_stdlib>, enough for compute kernels, for clang on Linux. It
// includes no system header on purpose: <math.h> would bring ::exp(double), which MSL has not.
// MSL_LINT gives device, constant and threadgroup real address spaces, so that clang checks pointer
// conversions as Apple's compiler (also a clang) does; such text is parsed only.
#pragma once
#include "msl_atomic.h"
#include "msl_matrix.h"
#ifndef MSL_LINT
#include "msl_bind.h"
#endif
